"""One session of a client in a simulated swarm: it opens a chain, generates, and replaces what it loses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from swarmlab.recovery.blame import Blame
from swarmlab.recovery.failure import Attempt, Cause
from swarmlab.recovery.routing import Hop, Need, NoRoute
from swarmlab.sim.population import Ending
from swarmlab.sim.shares import Pass
from swarmlab.sim.stalls import Stall
from swarmlab.sim.world import TIME_DIGITS
from swarmlab.types import Span

if TYPE_CHECKING:
    from simpy.events import ProcessGenerator

    from swarmlab.sim.clients import Client

FINISHED, FAILED = "finished", "failed"
AT_ONCE_S = 1e-3  # after its last moment a server may be taken for gone


class Session:
    """``run`` is its SimPy process.

    :ivar chain: servers whose blocks it can use, in order; with gaps where it has lost one
    """

    def __init__(self, client: Client, number: int) -> None:
        self._client, self.number = client, number
        self._traffic, self._world = client.traffic, client.traffic.world
        self._settings = self._world.settings.clients
        self._blame = Blame(client.recovery, client.bans)
        self.chain: list[Hop] = []
        self._unfed: list[Hop] = []
        self._lost: list[tuple[Hop, float]] = []
        self._pass: Pass | None = None
        self._passed_tokens = 0
        self._stall: tuple[str, Stall] | None = None
        self.seeks = False

    @property
    def tokens(self) -> int:
        """New tokens up to now."""
        under_way = self._pass
        if under_way is None or under_way.feeds:
            return self._passed_tokens
        return self._passed_tokens + under_way.done_tokens(self._world.now_s)

    def run(self) -> ProcessGenerator:
        """
        :returns: whether all tokens were generated
        """
        began_s, new_tokens, recoveries = self._world.now_s, self._settings.new_tokens, 0
        lives = yield from self._complete("openings")
        while lives and self._passed_tokens < new_tokens:
            yield from self._go(tuple(self.chain), new_tokens - self._passed_tokens, feeds=False)
            if self._passed_tokens < new_tokens:
                recoveries += 1
                lives = yield from self._complete("failovers")
        for hop in self.chain:
            self._traffic.release(self, hop)
        self._world.log(
            "sessions",
            **self._who(),
            prompt_tokens=self._settings.prompt_tokens,
            new_tokens=new_tokens,
            outcome=FINISHED if lives else FAILED,
            tokens=self._passed_tokens,
            recoveries=recoveries,
            elapsed_s=round(self._world.now_s - began_s, TIME_DIGITS),
        )

    def lose(self, hop: Hop) -> None:
        """The server does not serve these blocks any more."""
        self.chain.remove(hop)
        if hop in self._unfed:
            self._unfed.remove(hop)
        self._lost.append((hop, self._world.now_s))
        if self._pass is not None and hop in self._pass.hops:
            self._pass.stop()

    def cut_off(self) -> None:
        """The simulation is over: a stall that goes on is written down as far as it has come."""
        if self._stall is not None:
            self._stall[1].cut_off(self._world.now_s)
            self._write_stall(done=False, cut_off=True)

    def _complete(self, kind: str) -> ProcessGenerator:
        """Find servers for all blocks that have none and feed them the history: of a new session its prompt.

        :param kind: of the row about it; openings without trouble leave none
        :returns: False if that took more than the client's patience
        """
        stall = Stall(self._world.now_s)
        self._stall = kind, stall
        deadline_s = stall.began_s + self._settings.patience_s
        position = self._settings.prompt_tokens + self._passed_tokens
        done = False
        while not done:
            yield from self._notice(stall)
            gap = self._gap()
            if gap is not None:
                if not (yield from self._fill(gap, position, deadline_s, stall)):
                    break
            elif self._unfed:
                yield from self._feed(position, stall)
            else:
                done = True
        self._write_stall(done=done)
        return done

    def _write_stall(self, *, done: bool, cut_off: bool = False) -> None:
        """
        :param cut_off: whether it went on at the end of the simulation, so that it takes at least what is written
        """
        assert self._stall is not None
        (kind, stall), self._stall = self._stall, None
        if kind == "openings" and not stall.in_trouble and (done or cut_off):
            return
        self._world.log(
            kind,
            **self._who(),
            token=self._passed_tokens,
            tokens_replayed=self._settings.prompt_tokens + self._passed_tokens if done else 0,
            completed=done,
            cut_off=cut_off,
            **stall.row(self._world.now_s),
        )

    def _notice(self, stall: Stall) -> ProcessGenerator:
        # Servers lost at the same time are noticed at the same time.
        while self._lost:
            lost, self._lost = self._lost, []
            causes = [self._cause(hop.peer_id) for hop, _ in lost]
            if Cause.HUNG in causes:
                yield from self._wait(stall, "detect_s", self._settings.detect_s)
            for (hop, _), cause in zip(lost, causes, strict=True):
                self._fail(hop, cause, stall)

    def _cause(self, peer_id: str) -> Cause:
        """What a client meets that asks a server for blocks it does not serve.

        Who says goodbye, or moves, ends the stream or refuses at once; who is gone without a word says nothing.
        """
        if peer_id in self._world.present:
            return Cause.STALE
        visits = self._traffic.members[peer_id].visits
        past = [visit for visit in visits if visit.end_s <= self._world.now_s + AT_ONCE_S]
        return Cause.BROKEN if past and past[-1].ending is Ending.LEAVE else Cause.HUNG

    def _gap(self) -> Span | None:
        """The first blocks without a server."""
        at = 0
        for hop in self.chain:
            if hop.span.start > at:
                return Span(at, hop.span.start)
            at = hop.span.end
        n_blocks = self._world.settings.n_blocks
        return Span(at, n_blocks) if at < n_blocks else None

    def _fill(self, gap: Span, position: int, deadline_s: float, stall: Stall) -> ProcessGenerator:
        """Connect to servers for these blocks, one after another, until one fails.

        :returns: False if none was known before it was too late
        """
        need = Need(position, self._settings.new_tokens - self._passed_tokens, self._length)
        hops = yield from self._route(gap, need, deadline_s, stall)
        for hop in hops or ():
            stall.requests += 1
            yield from self._wait(stall, "connect_s", 2 * self._client.rtt_s[hop.peer_id])
            serves = self._world.serving.get(hop.peer_id)
            if serves is None or not serves.covers(hop.span):
                cause = self._cause(hop.peer_id)
                if cause is Cause.HUNG:
                    yield from self._wait(stall, "detect_s", self._settings.detect_s)
                self._fail(hop, cause, stall)
                break
            self.chain = sorted([*self.chain, hop], key=_start)
            self._unfed.append(hop)
            self._traffic.hold(self, hop)
            stall.take(hop)
        return hops is not None

    def _route(self, gap: Span, need: Need, deadline_s: float, stall: Stall) -> ProcessGenerator:
        """The cheapest chain, as the client knows the swarm; with nobody for a block it looks again and again.

        The order of tries is that of the real client (``bridge.inference.router``).

        :returns: hops, or None if there was no chain in time
        """
        client, world = self._client, self._world
        retry_s = client.recovery.retry_s
        known, asked_s = client.known(self._settings.view_age_s), world.now_s
        newest = known.view.seen_at_s >= asked_s
        while True:
            for last_resort in (False, True):
                excluded = self._blame.excluded(world.now_s, known.view, last_resort=last_resort)
                try:
                    return self._traffic.routes.cheapest(
                        known, client.site, gap, need, excluded, self._blame.suspects()
                    )
                except NoRoute:
                    continue
            if world.now_s + retry_s > deadline_s:
                return None
            if newest:
                self.seeks = True
                yield from self._wait(stall, "reroute_s", retry_s)
                self.seeks = False
                retry_s = min(2 * retry_s, client.recovery.retry_max_s)
            newest, known = True, client.known(0.0)

    def _feed(self, position: int, stall: Stall) -> ProcessGenerator:
        began_s = self._world.now_s
        stall.waits = "replay_s", began_s
        hops = tuple(self._unfed)
        if (yield from self._go(hops, position, feeds=True)):
            self._unfed = [hop for hop in self._unfed if hop not in hops]
            for hop in hops:
                self._blame.praise(hop.peer_id, began_s)
        stall.waited_s["replay_s"] += self._world.now_s - began_s
        stall.waits = None

    def _go(self, hops: tuple[Hop, ...], tokens: int, *, feeds: bool) -> ProcessGenerator:
        """
        :returns: whether all have passed
        """
        self._pass = one = Pass(hops, float(tokens), self._client.rtt_s, feeds)
        yield from one.run(self._world.env, self._traffic.shares)
        self._pass = None
        if not feeds:
            self._passed_tokens += one.done_tokens(self._world.now_s)
        return one.left_tokens <= 0

    def _fail(self, hop: Hop, cause: Cause, stall: Stall) -> None:
        stall.fail(hop, cause)
        attempt = Attempt(hop.peer_id, str(hop.span), cause, "simulated", math.inf)
        self._blame.failed(attempt, self._world.now_s, self._client.view)

    def _wait(self, stall: Stall, what: str, seconds: float) -> ProcessGenerator:
        stall.waits = what, self._world.now_s
        yield self._world.env.timeout(seconds)
        stall.waited_s[what] += seconds
        stall.waits = None

    @property
    def _length(self) -> int:
        return self._settings.prompt_tokens + self._settings.new_tokens

    def _who(self) -> dict[str, Any]:
        return {"client": self._client.number, "session": self.number}


def _start(hop: Hop) -> int:
    return hop.span.start
