"""Our own placement: decide once, say so first, keep what is loaded, and move only for more than it costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput
from swarmlab.placement.doubts import has_hole, whom_to_ask
from swarmlab.placement.grace import remember
from swarmlab.placement.join import soft_min_join
from swarmlab.placement.layout import layout_of
from swarmlab.placement.memory import Departure, Memory, Wish
from swarmlab.placement.moves import Moves, Price, moves, rank
from swarmlab.placement.policy import held_in, stay
from swarmlab.placement.shared_plan import shared_plan
from swarmlab.placement.situation import situation
from swarmlab.types import Decision, Intent, Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Layout, Rng
    from swarmlab.placement.policy import Server
    from swarmlab.placement.situation import Situation
    from swarmlab.types import ServerRecord, SwarmView

MAX_TURNS = 5  # servers with more rivals ahead than this wait no longer: many of them may not be able to move
FAR_BACK = 20  # servers with so many rivals ahead look again at their ordinary check only
MAX_DEPARTURES = 64
TICK_S = 1e-6  # two clock readings this near are the same time
# A swarm with gaps that lasts so has a plan with up to so many servers besides: two or three seconds of a core.
PLANNED = 20
NEWS_SPARED = 6  # a plan waits for so many exchanges of news: moves on views that old undo each other's plans
KEEP_WISH = 0.9  # a wish stands while it is worth this share of the best move


@dataclass(frozen=True)
class Swarmlab:
    """A move goes through three looks at the swarm: wish it, announce it, and make it if it still is worth it.

    - The worth of a move is what the soft minimum of the blocks' throughputs gains over ``price.horizon_s``, less
      what the served bottleneck loses while blocks load, less a price on loading itself (``moves.py``).
    - Missing records are believed gone after ``grace_s`` only, or once their servers themselves, asked past the DHT,
      do not serve any more (``grace.py``, ``doubts.py``). A server that nobody answers keeps its span: it is cut off.
    - Of several servers that would fill one gap, those whose moves are worth most announce them first, and everybody
      counts announced moves as made (``situation.py``), so the others find the gap filled.
    - An announced move begins when its server finds the announcement in the swarm itself: whatever was announced
      before can be found by then, too. How long that takes also says how far apart servers take turns.
    - Where a block has nobody, the swarm serves nothing, and a server that alone can mend that loads before its
      announcement is found; it still gives up nothing before.
    - No move leaves a block unserved in a swarm that serves all; where blocks have nobody, announced moves wait
      until together they give each block somebody; none goes back to a span left within ``no_return_s``.
    - Up to ``small_swarm`` servers follow one exact plan (``shared_plan.py``), and so do twice as many if blocks
      have nobody and the moves that they find on their own, if there are any, have long not mended that: where servers
      can hold hardly more than the model, only a chain of moves does.
    - Where loading takes no time, a server of a larger swarm goes to its best place at each check, and says so by
      being there; it still leaves no block unserved.

    :param grace_s: how long a vanished server is believed to be there
    :param visible_after_s: how long a server waits at most to find its own announcement
    :param confirm_s: how soon it looks for it, and the least time between the turns of two servers
    :param watch_s: between its checks it looks so often whether some block has nobody, and checks at once if so
    :param good_enough: share of the optimum that a small swarm is content with
    """

    price: Price = field(default_factory=Price)
    grace_s: float = 90.0
    visible_after_s: float = 60.0
    confirm_s: float = 10.0
    watch_s: float = 20.0
    no_return_s: float = 3600.0
    small_swarm: int = 10
    good_enough: float = 0.95
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 5.0
    name: str = "swarmlab"

    def __post_init__(self) -> None:
        for setting in ("grace_s", "visible_after_s", "confirm_s", "no_return_s"):
            if not 0 <= getattr(self, setting) < float("inf"):
                raise BadInput(f"swarmlab.{setting}", getattr(self, setting), "seconds, 0 or more")
        if not 0 < self.watch_s <= float("inf"):
            raise BadInput("swarmlab.watch_s", self.watch_s, "seconds above 0; .inf: never")
        if not 0 < self.good_enough <= 1:
            raise BadInput("swarmlab.good_enough", self.good_enough, "a share above 0, at most 1")

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        """Where the soft minimum becomes largest, counting loading and announced servers as arrived."""
        del rng
        chosen = soft_min_join(view, server, self.name)
        # whoever is missing at the first check was there, or was not
        return replace(chosen, memory=Memory(last_view=view))

    def whom_to_ask(self, view: SwarmView, server: Server, memory: Memory | None) -> tuple[ServerRecord, ...]:
        """Servers whose answers ``memory.testimony`` should have at this check; nobody if none is in doubt."""
        return whom_to_ask(view, memory, server.peer_id)

    def must_check(self, view: SwarmView, server: Server, memory: Memory | None) -> bool:
        """Whether the next check is due at once, whatever the last decision said."""
        return server.span is not None and has_hole(view, memory, server.span)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        """Wish, announce or make a move; the decision names the next look if that should not wait for the period.

        :raises BadInput: if the server holds no span of this model
        """
        del rng
        old = held_in(view, server)
        if memory is not None and memory.testimony is not None and memory.testimony.cut_off:
            # what was read meanwhile is nothing to remember: all would seem to have vanished
            at_rest = stay(server, 0.0, self.name, "nobody answers it", replace(memory, testimony=None))
            return replace(at_rest, intent=memory.wish.intent if memory.wish else None)
        known = remember(view, memory, grace_s=self.grace_s, own_peer=server.peer_id)
        layout = layout_of(view)
        intent = known.wish.intent if known.wish else None
        if intent is not None:
            wait_s = self._unseen_s(layout, server, intent, view.seen_at_s)
            if wait_s > TICK_S:
                present_tps, reason = float(layout.throughput_tps.min()), "its announcement is not seen yet"
                at_rest = stay(server, present_tps, self.name, reason, known)
                return replace(at_rest, intent=intent, check_again_s=wait_s)
            known = replace(known, news_s=view.seen_at_s - intent.announced_at_s)
        seen = situation(view, server.peer_id, known, intent)
        options = moves(seen, server, old, self.price)
        at_first = memory is None or memory.last_view is None
        look = _Look(view.seen_at_s, layout, server, seen, options, known, at_first)
        is_small = look.others < self.small_swarm
        if server.load.is_free and not is_small:
            return self._freely(look)
        want = self._plan(look) if is_small else self._best_alone(look)
        look.known = self._with_gap(look, want.target)
        if self._is_stuck(look):
            want = self._plan(look)
        rested = look.known if known.wish is None else replace(look.known, wish=None)
        at_rest = stay(server, options.swarm_tps(old.start), self.name, want.reason, rested)
        if want.target is None or want.target in self._shunned(look):
            return at_rest
        return self._proceed(look, want.target, want.turn, at_rest)

    def _freely(self, look: _Look) -> Decision:
        # Loading takes no time: others see the move itself as soon as they would see it announced, a second one is
        # undone as easily as made, and so is this one. There is nothing to confirm, to take turns for, or to regret.
        options, rested = look.options, replace(look.known, wish=None)
        target = options.best()
        at_rest = stay(look.server, options.swarm_tps(options.old.start), self.name, "no move gains", rested)
        if target is None:
            return at_rest
        reason = f"{target} is worth {options.worth[target.start]:.3g} tokens and costs none"
        predicted_tps = options.swarm_tps(target.start)
        return replace(at_rest, moved=True, target=target, predicted_tps=predicted_tps, reason=reason)

    def _unseen_s(self, layout: Layout, server: Server, intent: Intent, now_s: float) -> float:
        # How long to wait until the next look for its own announcement; 0 if it is there, or should have been.
        own = layout.index(server.peer_id)
        if own is not None and layout.records[own].intent == intent:
            return 0.0
        return min(self.confirm_s, intent.announced_at_s + self.visible_after_s - now_s)

    def _plan(self, look: _Look) -> _Want:
        # A small swarm: this server's part in the plan that all share.
        old, load = look.options.old, look.server.load
        plan = shared_plan(look.layout, look.seen, look.server, old, share=self.good_enough)
        load_s = plan.movers * load.s_per_move + plan.blocks_loaded * load.s_per_block
        toll_tps = self.price.toll_tps(look.options.mean_tps, look.seen.grain_tps)
        cost = (toll_tps + plan.lost_tps) * load_s
        if not plan.movers or (plan.planned_tps - plan.present_tps) * self.price.horizon_s <= cost:
            return _Want(None, 0, f"{plan.present_tps:.6g} tokens/s is about what moving is worth")
        reason = f"{plan.movers} moves would raise {plan.present_tps:.6g} to {plan.planned_tps:.6g} tokens/s"
        if plan.target != old:
            return _Want(plan.target, 0, reason)
        return _Want(
            look.options.best(shunned=self._shunned(look)), plan.movers, f"{reason}, none of them here"
        )

    def _best_alone(self, look: _Look) -> _Want:
        # A large swarm: the best move of this server if all others stay on their way.
        options, wish = look.options, look.known.wish
        target = options.best(shunned=self._shunned(look))
        if target is None:
            return _Want(None, 0, "no move is worth its cost")
        if wish and wish.target.length == target.length and options.safe[wish.target.start]:
            stands = options.worth[wish.target.start] >= KEEP_WISH * options.worth[target.start]
            target = wish.target if stands else target
        turn = rank(look.layout, look.seen, look.server, options.old, self.price, FAR_BACK)
        return _Want(target, turn, f"{target} is worth {options.worth[target.start]:.3g} tokens")

    def _with_gap(self, look: _Look, target: Span | None) -> Memory:
        # Since when blocks have nobody, even with what servers announced on their own made; nothing in other swarms.
        known, is_open = look.known, self.small_swarm <= look.others < PLANNED
        is_open = is_open and not look.options.completes_with_all((target or look.options.old).start)
        if is_open == (known.gap_since_s is not None):
            return known
        return replace(known, gap_since_s=look.now_s if is_open else None)

    def _is_stuck(self, look: _Look) -> bool:
        # The gap has lasted long.
        known = look.known
        patience_s = 2 * self.visible_after_s + NEWS_SPARED * min(known.news_s, self.visible_after_s)
        return known.gap_since_s is not None and look.now_s - known.gap_since_s > patience_s

    def _shunned(self, look: _Look) -> tuple[Span, ...]:
        # Spans left lately.
        return tuple(item.span for item in look.known.departures if look.now_s - item.at_s < self.no_return_s)

    def _proceed(self, look: _Look, target: Span, turn: int, at_rest: Decision) -> Decision:
        known, options, now_s, reason = look.known, look.options, look.now_s, at_rest.reason
        wish = known.wish if known.wish and known.wish.target == target else Wish(target, now_s)
        turn_s = min(max(self.confirm_s, known.news_s), self.visible_after_s)
        wait_s = wish.since_s + min(turn, MAX_TURNS) * turn_s - now_s
        if wish.intent is None and wait_s > TICK_S:
            # far down the queue it need not look before its ordinary check: most likely others fill the gap
            soon_s = wait_s if turn < FAR_BACK else None
            known = replace(known, wish=wish)
            ahead = f"{turn} before it" if turn < FAR_BACK else f"{FAR_BACK} or more before it"
            return replace(at_rest, reason=f"{reason}; {ahead}", check_again_s=soon_s, memory=known)
        intent = wish.intent or Intent(target, now_s)
        waiting = replace(at_rest, intent=intent, memory=replace(known, wish=replace(wish, intent=intent)))
        unannounced = wish.intent is None and self.visible_after_s > TICK_S
        if unannounced and (look.at_first or not _mends_alone(options, target.start)):
            wait_s = min(self.confirm_s, self.visible_after_s)
            return replace(waiting, reason=f"{reason}; announced", check_again_s=wait_s)
        if hindrance := _hindrance(options, target.start):
            return replace(waiting, reason=f"{reason}; waits: {hindrance}")
        arrives_s = now_s + look.server.load.reload_s(options.old, target)
        departures = (*known.departures, Departure(options.old, arrives_s))[-MAX_DEPARTURES:]
        return replace(
            at_rest,
            moved=True,
            target=target,
            predicted_tps=options.swarm_tps(target.start),
            reason=f"{reason}; loads {int(options.blocks_loaded[target.start])} blocks",
            intent=intent if unannounced else None,
            check_again_s=self.visible_after_s if unannounced else None,
            memory=replace(known, wish=None, departures=departures),
        )


@dataclass(eq=False, slots=True)
class _Look:
    # What a server has before it at one check.
    now_s: float
    layout: Layout
    server: Server
    seen: Situation
    options: Moves
    known: Memory
    # nothing is remembered: whoever is missing from this read has not vanished, it was never seen
    at_first: bool

    @property
    def others(self) -> int:
        return len(self.layout.records) - (self.layout.index(self.server.peer_id) is not None)


@dataclass(eq=False, slots=True)
class _Want:
    # A move to wish for (None: stay), how many servers should go before, and why.
    target: Span | None
    turn: int
    reason: str


def _mends_alone(options: Moves, start: int) -> bool:
    # Blocks have nobody, and this move alone gives each of them somebody.
    return not options.completes(options.old.start) and options.completes(start)


def _hindrance(options: Moves, start: int) -> str:
    # in a swarm with a gap no client is served that a move could cut off
    if not options.safe[start] and options.completes(options.old.start):
        return "nobody else serves what it would leave"
    if not options.completes_with_all(start):
        return "some blocks would still have nobody"
    if options.worth[start] <= 0:
        return "alone it would gain nothing"
    return ""
