"""Our server: petals' own, which decides once, keeps the blocks it holds, and serves while it prepares a move.

Its command line is petals' (``petals.cli.run_server``), its protocol too: unmodified clients and servers cannot tell
it from petals. The kind ``server:server`` of ``swarmlab.swarm.spec.ServerSpec``.
"""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hivemind.utils import get_dht_time, get_logger
from petals.server import server as petals_server

from swarmlab.bridge import children, slow_disk
from swarmlab.bridge.announcer import Announcer, Statement
from swarmlab.bridge.block_loader import BlockLoader, BlockRecipe, PetalsLoader
from swarmlab.bridge.container import BlockContainer
from swarmlab.bridge.dht_port import DhtPort
from swarmlab.bridge.events import EventLog
from swarmlab.bridge.gates import Gates
from swarmlab.bridge.memory_probe import plan_memory
from swarmlab.bridge.mover import Mover, Result, Tools, load_within
from swarmlab.bridge.policies import policy_of
from swarmlab.bridge.reload_account import FAILED, MOVED, LoadMeter, ReloadAccount
from swarmlab.bridge.told import NAME as TOLD
from swarmlab.bridge.told import Told
from swarmlab.errors import BadInput
from swarmlab.placement.memory import Memory
from swarmlab.placement.objection import gain, objection
from swarmlab.placement.policy import Policy
from swarmlab.placement.policy import Server as Itself
from swarmlab.placement.reload_plan import MODES, plan_move
from swarmlab.types import Decision, Intent, Span, SwarmView

logger = get_logger(__name__)

TICK_S = 1.0  # between two looks at whether the handlers are alive
MAX_BACKOFF = 16  # check periods that a server waits at most after moves that failed
VIEW_TRIES, VIEW_RETRY_S = 3, 2.0


@dataclass(frozen=True)
class Options:
    """What our server takes beside petals' command line.

    :param reload: ``prefetch``, ``in_place`` or ``auto``
    :param drain_s: how long open sessions get to finish before blocks that they use are dropped
    :param load_deadline_s: a block that takes longer to load has failed
    :param seed: of the policy's draws and of the waits between checks
    """

    policy: Policy
    reload: str = "auto"
    drain_s: float = 10.0
    load_deadline_s: float = 1800.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.reload not in MODES:
            raise BadInput("reload", self.reload, ", ".join(MODES))
        for name in ("drain_s", "load_deadline_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadInput(name, getattr(self, name), "seconds, 0 or more")


class Server(petals_server.Server):
    """Petals' server with another life: see ``docs/rebalancing.md``.

    :param loader_of: makes the loader, from this server
    """

    def __init__(
        self, *, options: Options, events: EventLog, gates: Gates, loader_of: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._options, self._events, self._gates = options, events, gates
        self._policy = options.policy
        self._port = DhtPort(self.dht)
        self._loader: BlockLoader = loader_of(self)
        self._meter = LoadMeter()
        self._rng = np.random.default_rng(options.seed)
        self._waits = random.Random(options.seed)
        self._memory: Memory | None = None
        self._span: Span | None = None
        self._intent: Intent | None = None
        self._failures = 0
        self._announcer: Any = None

    def run(self) -> None:
        """Join, then look, move and mend until :meth:`shutdown`."""
        self._join()
        try:
            wait_s = self._usual_wait_s()
            while not self._pause(wait_s):
                wait_s = self._look()
        finally:
            self._leave()

    # --- joining and leaving

    def _join(self) -> None:
        decision = self._first_decision()
        span = decision.target
        self.module_container = BlockContainer(self)
        self._announcer = Announcer(
            self, self._port, self._container.front.memory_cache, Statement(None, self._intent_to(span))
        )
        self._announcer.start()
        self.module_container.run_in_background(await_ready=True)
        account = ReloadAccount(None, span, None)
        self._note_decision("join", decision)
        try:
            for block in span:
                with account.timed("load"):
                    started = time.monotonic()
                    loaded = load_within(self._loader, block, self._options.load_deadline_s, self.stop)
                self._meter.add(time.monotonic() - started)
                account.loaded(block, loaded)
                self._container.add({block: loaded.module})
            if self.should_validate_reachability:
                petals_server.validate_reachability(self.dht.peer_id)
        except BaseException:
            self._leave()
            raise
        self._span = span
        self._announcer.say(Statement(span))
        account.serves(span)
        self._events.emit("reloads", **account.row(MOVED, span, "", self.server_info.throughput, None))
        self._note_state("online")

    def _first_decision(self) -> Decision:
        if self.strict_block_indices is not None:
            fixed: Any = self.strict_block_indices  # a range by now
            span = Span(fixed[0], fixed[-1] + 1)
            return Decision(True, None, span, 0.0, 0.0, "pinned", "--block_indices")
        # servers that are started together should not all choose on the same view
        self.stop.wait(self._waits.uniform(0, 2 * self._policy.mean_choice_delay_s))
        return self._policy.choose(self._view(), self._itself(None), self._rng)

    def _leave(self) -> None:
        if self._announcer is not None:
            self._announcer.go_offline()
        if self.module_container is not None:
            self.module_container.shutdown()
        self._note_state("offline")

    # --- a life between joining and leaving

    def _pause(self, wait_s: float) -> bool:
        """Wait, with an eye on the handlers; True if the server is to end."""
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            if self.stop.wait(min(left_s, TICK_S)):
                return True
            self._heal()
        return self.stop.is_set()

    def _heal(self) -> None:
        """New handlers round the same blocks, if one of them has died."""
        if self._container.is_healthy():
            return
        logger.warning("A handler has died, all are started anew; the blocks stay")
        self._events.log("warning", "a handler has died, all are started anew")
        modules = self._container.modules()
        self._container.shutdown()
        container = BlockContainer(self)
        container.add(modules)
        self.module_container = container
        self._announcer.memory_cache = container.front.memory_cache
        container.run_in_background(await_ready=True)

    def _look(self) -> float:
        """Check the balance once, and do what the policy says; returns the seconds until the next check."""
        if self.strict_block_indices is not None:
            return self._usual_wait_s()
        if self._container.blocks != frozenset(self._here):
            return self._mend()
        try:
            view = self._view()
        except Exception as error:  # noqa: BLE001 - a server that cannot see the swarm stays where it is
            self._events.log("warning", f"the swarm cannot be seen: {type(error).__name__}: {error}")
            return self._usual_wait_s()
        before, itself = self._memory, self._itself(self._here)
        decision = self._policy.reconsider(view, itself, before, self._rng)
        self._memory = decision.memory
        if decision.moved and decision.target != self._here:
            return self._move(decision, view, before)
        if decision.intent != self._intent:
            self._note_decision("check", decision)
            self._intent = decision.intent
            self._announcer.say(Statement(self._here, decision.intent))
        return self._usual_wait_s() if decision.check_again_s is None else decision.check_again_s

    def _move(self, decision: Decision, view: SwarmView, before: Memory | None) -> float:
        target, intent = decision.target, self._intent
        self._note_decision("check", decision)
        self._gates.pass_through("decided")
        announced_at_s = intent.announced_at_s if intent and intent.span == target else None
        account = ReloadAccount(self._here, target, self._here)
        memory = plan_memory(self, self._options.reload, self._container, self._here, target)
        self._events.log(
            "info", f"move {self._here} to {target}: {memory.mode}, {memory.reason}", **vars(memory)
        )
        since_s = get_dht_time() if announced_at_s is None else announced_at_s
        object_to = self._objections(target, Intent(target, since_s), view)
        mover = Mover(self._tools(), account, object_to, since_s)
        result = self._in_thread(lambda: mover.run(plan_move(self._here, target, memory.mode)))
        self._settle(result, decision, before)
        self._events.emit(
            "reloads",
            **account.row(result.outcome, result.at, result.reason, self.server_info.throughput, memory),
        )
        self._note_state("online" if result.outcome != FAILED else "damaged")
        return self._wait_after()

    def _settle(self, result: Result, decision: Decision, before: Memory | None) -> None:
        # A move that was not made is none to remember.
        self._span, self._intent = result.at, None
        if result.outcome == MOVED:
            self._failures = 0
        else:
            self._memory = None if before is None else replace(before, wish=None)
            self._failures += 1
            logger.warning(f"The move to {decision.target} was {result.outcome}: {result.reason}")

    def _mend(self) -> float:
        """A part of the span is missing since a move failed: try to load it again."""
        account = ReloadAccount(self._here, self._here, None)
        mover = Mover(self._tools(), account, lambda _: None)
        if self._in_thread(lambda: mover.mend(self._here)):
            self._failures = 0
            self._note_state("online")
        else:
            self._failures += 1
        return self._wait_after()

    def _wait_after(self) -> float:
        if self._failures == 0:
            return self._usual_wait_s()
        return self.mean_balance_check_period * min(2**self._failures, MAX_BACKOFF)

    def _in_thread(self, work: Any) -> Any:
        """Run it beside an eye on the handlers."""
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(work()), name="mover", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(TICK_S)
            self._heal()
        return results[0]

    def _objections(self, target: Span, intent: Intent, then: SwarmView) -> Any:
        """A function that says whether something speaks against giving up blocks now."""
        gain_then = gain(then, self._itself(self._here), self._here, target, intent)

        def ask(leaving: Sequence[int]) -> str | None:
            view = self._patient_view()
            if view is None:
                return "the swarm cannot be seen"
            here = self._here
            return objection(
                view,
                self._itself(here),
                here,
                target,
                leaving=tuple(leaving),
                intent=intent,
                gain_then=gain_then,
            )

        return ask

    # --- what it sees and says

    def _patient_view(self) -> SwarmView | None:
        for _ in range(VIEW_TRIES):
            try:
                return self._view()
            except Exception as error:  # noqa: BLE001 - a DHT may need a moment to find new ways
                self._events.log("warning", f"the swarm cannot be seen: {type(error).__name__}: {error}")
            if self.stop.wait(VIEW_RETRY_S):
                break
        return None

    def _view(self) -> SwarmView:
        return self._port.view(str(self.dht_prefix), len(self.module_uids))

    def _itself(self, span: Span | None) -> Itself:
        n_blocks: Any = self.num_blocks  # petals has made sure that it is a number
        peer_id = self.dht.peer_id.to_base58()
        return Itself(peer_id, n_blocks, self.server_info.throughput, span, self._meter.cost())

    @property
    def _here(self) -> Span:
        if self._span is None:
            raise RuntimeError("the server has not joined yet")
        return self._span

    @property
    def _container(self) -> BlockContainer:
        container: Any = self.module_container
        return container

    def _tools(self) -> Tools:
        return Tools(
            container=lambda: self._container,
            say=self._announcer.say,
            loader=self._loader,
            clock=get_dht_time,
            gates=self._gates,
            events=self._events,
            meter=self._meter,
            drain_s=self._options.drain_s,
            load_deadline_s=self._options.load_deadline_s,
            stopping=self.stop,
        )

    def _intent_to(self, span: Span) -> Intent:
        return Intent(span, get_dht_time())

    def _usual_wait_s(self) -> float:
        return self._waits.uniform(0, 2 * self.mean_balance_check_period)

    def _note_decision(self, phase: str, decision: Decision) -> None:
        moved = decision.moved and decision.target != decision.old
        self._events.emit(
            "decisions",
            phase=phase,
            policy=decision.policy,
            moved=moved,
            old=None if decision.old is None else str(decision.old),
            target=str(decision.target),
            chosen=str(decision.target) if moved else None,
            intent=None if decision.intent is None else str(decision.intent.span),
            reason=decision.reason,
            predicted_gain=decision.predicted_tps - decision.expected_stay_tps,
        )

    def _note_state(self, state: str) -> None:
        span = self._span
        modules = {} if self.module_container is None else self._container.modules()
        self._events.emit(
            "servers",
            state=state,
            peer=self.dht.peer_id.to_base58(),
            start=span and span.start,
            end=span and span.end,
            modules={block: id(module) for block, module in modules.items()},
        )


def server(args: Mapping[str, Any], channel: str) -> None:
    """As ``children.server``.

    :param args: ``argv``; ``policy`` (a name of ``placement.registry``, or ``told``), ``policy_settings`` (JSON),
        ``reload``, ``drain_s``, ``load_deadline_s``, ``seed``, ``mean_choice_delay_s``; ``events_path``, ``gate_dir``,
        ``read_delay_s``; ``store_dir`` and ``store_max_bytes`` of a block store
    :raises BadInput: for an option that cannot be
    """
    options = options_of(args)
    slow_disk.install(float(args.get("read_delay_s", 0.0)))
    entry: Any = children.run_server
    entry.Server = functools.partial(
        Server,
        options=options,
        events=EventLog(args.get("events_path")),
        gates=Gates(args.get("gate_dir")),
        loader_of=functools.partial(loader_of, args),
    )
    children.server({"argv": args["argv"]}, channel)


def options_of(args: Mapping[str, Any]) -> Options:
    """
    :raises BadInput: for an option that cannot be
    """
    name = args.get("policy", "swarmlab")
    settings = args.get("policy_settings")
    policy: Any = Told(args["told_path"]) if name == TOLD else policy_of(name, settings)
    if "mean_choice_delay_s" in args:
        policy = replace(policy, mean_choice_delay_s=float(args["mean_choice_delay_s"]))
    numbers = {key: float(args[key]) for key in ("drain_s", "load_deadline_s") if key in args}
    return Options(policy, str(args.get("reload", "auto")), seed=int(args.get("seed", 0)), **numbers)


def loader_of(args: Mapping[str, Any], server: Any) -> BlockLoader:
    """The loader that the options ask for: through a block store if they name one."""
    recipe = BlockRecipe.of_server(server)
    if not args.get("store_dir"):
        return PetalsLoader(recipe)
    from swarmlab.bridge.block_store import BlockStore
    from swarmlab.bridge.store_loader import StoreLoader

    store = BlockStore(Path(args["store_dir"]), int(args.get("store_max_bytes", 2**40)))
    return StoreLoader(recipe, store, PetalsLoader(recipe))
