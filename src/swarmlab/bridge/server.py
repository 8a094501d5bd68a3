"""Our server: petals' own, which decides once, keeps the blocks it holds, and serves while it prepares a move.

Its command line is petals' (``petals.cli.run_server``), its protocol too: unmodified clients and servers cannot tell
it from petals. The kind ``server:server`` of ``swarmlab.swarm.spec.ServerSpec``. See ``docs/rebalancing.md``.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hivemind.utils import get_dht_time
from petals.server import server as petals_server

from swarmlab.bridge import children, graph_capture
from swarmlab.bridge.blocks import local_checkpoint, slow_disk
from swarmlab.bridge.blocks.loader import BlockLoader
from swarmlab.bridge.container import BlockContainer
from swarmlab.bridge.events import EventLog
from swarmlab.bridge.serving.announcer import Announcer, Statement
from swarmlab.bridge.serving.caretaker import Caretaker
from swarmlab.bridge.serving.dht_port import DhtPort
from swarmlab.bridge.serving.gates import Gates
from swarmlab.bridge.serving.loads import Loads
from swarmlab.bridge.serving.memory_probe import plan_memory
from swarmlab.bridge.serving.mover import Mover, Result, Tools, load_counted
from swarmlab.bridge.serving.options import Options, loader_of, options_of
from swarmlab.bridge.serving.outlook import Outlook
from swarmlab.bridge.serving.reload_account import FAILED, MENDED, MOVED, LoadMeter, ReloadAccount
from swarmlab.bridge.serving.rows import decision_row, state_row
from swarmlab.bridge.serving.shelf import Shelf
from swarmlab.placement.memory import Memory
from swarmlab.placement.policy import Asking, wait_after_setbacks_s
from swarmlab.placement.policy import Server as Itself
from swarmlab.placement.reload_plan import contiguous, plan_move
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.types import Decision, Intent, Span, SwarmView


class Server(petals_server.Server):
    """Petals' server with another life.

    :param loader_of: makes the loader, from this server
    """

    def __init__(
        self,
        *,
        options: Options,
        events: EventLog,
        gates: Gates,
        loader_of: Callable[[Any], BlockLoader],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._options, self._policy = options, options.policy
        self._events, self._gates = events, gates
        self._port = DhtPort(self.dht)
        n_blocks = self.block_config.num_hidden_layers
        self._outlook = Outlook(self._port, str(self.dht_prefix), n_blocks, events, self.stop)
        self._peer_id = self.dht.peer_id.to_base58()
        self._loads, self._meter = Loads(loader_of(self), self.stop), LoadMeter()
        self._rng, self._waits = np.random.default_rng(options.seed), random.Random(options.seed)
        self._memory: Memory | None = None
        self._span: Span | None = None
        self._intent: Intent | None = None
        self._setbacks, self._watched_s = 0, time.monotonic()
        self._follows_plan = isinstance(self._policy, Swarmlab) and self.strict_block_indices is None

    def run(self) -> None:
        """Join, then look, move and mend until the process is told to end."""
        decision = self._first_decision()
        self._shelf = Shelf(lambda: BlockContainer(self))
        first = Statement(None, Intent(decision.target, get_dht_time()))
        cache, follows = self._shelf.container.front.memory_cache, self._follows_plan
        self._announcer = Announcer(self, self._port, cache, first, follows_plan=follows)
        self._caretaker = Caretaker(self._shelf, self._announcer, self._port, self._events, self.stop)
        try:
            self._join(decision)
            wait_s = self._usual_wait_s()
            while not self._caretaker.wait(wait_s, self._must_check):
                wait_s = self._look()
        finally:
            self.stop.set()
            self._announcer.go_offline()
            self._shelf.shutdown()
            self._tell_state("offline")

    def _first_decision(self) -> Decision:
        if self.strict_block_indices is not None:
            fixed: Any = self.strict_block_indices  # a range by now
            span = Span(fixed[0], fixed[-1] + 1)
            return Decision(True, None, span, 0.0, 0.0, "pinned", "--block_indices")
        # servers that are started together should not all choose on the same view
        self.stop.wait(self._waits.uniform(0, 2 * self._policy.mean_choice_delay_s))
        return self._policy.choose(self._outlook.look_to_join(), self._itself(None), self._rng)

    def _join(self, decision: Decision) -> None:
        """Load the first span. Handlers are started before, so that they hold no copies of weights.

        :raises Exception: whatever loading raises; a server that cannot hold its blocks ends
        """
        span, account = decision.target, ReloadAccount(None, decision.target, None)
        self._memory = decision.memory
        self._events.emit("decisions", **decision_row("join", decision))
        # before the announcer's thread: a handler forked while that holds a lock would wait for it for ever
        self._shelf.start()
        self._announcer.start()
        tools = self._tools()
        # all at once: whoever asks for one of them takes the answer for all
        self._shelf.add({block: load_counted(tools, account, block) for block in span})
        if self.should_validate_reachability:
            petals_server.validate_reachability(self.dht.peer_id)
        self._span = span
        self._announcer.say(Statement(span))
        account.serves(span)
        self._events.emit("reloads", **account.row(MOVED, span, "", self.server_info.throughput, None))
        self._tell_state("online")

    def _must_check(self) -> bool:
        """Between two checks: whether some block has nobody. Not after moves that were not made: then it waits."""
        if not isinstance(self._policy, Asking) or self.strict_block_indices is not None or self._setbacks:
            return False
        if time.monotonic() < self._watched_s + self._policy.watch_s:
            return False
        self._watched_s = time.monotonic()
        return self._outlook.must_check(self._policy, self._itself(self._here), self._memory)

    def _look(self) -> float:
        """Check the balance once, and do what the policy says; the seconds until the next check."""
        if self.strict_block_indices is not None:
            return self._usual_wait_s()
        if self._shelf.blocks != frozenset(self._here):
            return self._mend()
        view = self._outlook.look_patiently()
        if view is None:
            return self._usual_wait_s()
        self._watched_s = time.monotonic()
        before = self._outlook.ask(self._policy, view, self._itself(self._here), self._memory)
        decision = self._policy.reconsider(view, self._itself(self._here), before, self._rng)
        self._memory = decision.memory
        if decision.moved and decision.target != self._here:
            return self._move(decision, view, before)
        if decision.intent != self._intent:
            self._events.emit("decisions", **decision_row("check", decision))
            self._intent = decision.intent
            self._announcer.say(Statement(self._here, decision.intent))
        return self._usual_wait_s() if decision.check_again_s is None else decision.check_again_s

    def _move(self, decision: Decision, view: SwarmView, before: Memory | None) -> float:
        here, target, known = self._here, decision.target, self._intent
        self._events.emit("decisions", **decision_row("check", decision))
        self._gates.pass_through("decided")
        account = ReloadAccount(here, target, here)
        memory = plan_memory(self, self._options.reload, self._shelf.container, here, target)
        self._events.log("info", f"move {here} to {target}: {memory.mode}", **vars(memory))
        intent = (
            known if known and known.span == target else decision.intent or Intent(target, get_dht_time())
        )
        objections = self._outlook.objections(self._itself(here), here, decision, intent, view)
        mover = Mover(self._tools(), account, objections, intent.announced_at_s)
        plan = plan_move(here, target, memory.mode, announced=decision.intent is None)
        result: Result = self._caretaker.beside(lambda: mover.run(plan))
        self._span, self._intent = result.at, None
        if result.outcome == MOVED:
            self._setbacks = 0
        else:
            # a move that was not made is none to remember
            self._memory = None if before is None else replace(before, wish=None, testimony=None)
            self._setbacks += 1
        row = account.row(result.outcome, result.at, result.reason, self.server_info.throughput, memory)
        self._events.emit("reloads", **row)
        self._tell_state("damaged" if result.outcome == FAILED else "online")
        return self._wait_after_move()

    def _mend(self) -> float:
        """A part of the span is missing since a move failed: try to load it again."""
        here = self._here
        account = ReloadAccount(here, here, contiguous(self._shelf.blocks & set(here)))
        mover = Mover(self._tools(), account, lambda _: None)
        if self._caretaker.beside(lambda: mover.mend(here)):
            self._setbacks = 0
            row = account.row(MENDED, here, "", self.server_info.throughput, None)
            self._events.emit("reloads", **row)
            self._tell_state("online")
        else:
            self._setbacks += 1
        return self._wait_after_move()

    def _wait_after_move(self) -> float:
        if self._setbacks == 0:
            return self._usual_wait_s()
        return wait_after_setbacks_s(self.mean_balance_check_period, self._setbacks)

    def _itself(self, span: Span | None) -> Itself:
        n_blocks: Any = self.num_blocks  # petals has made sure that it is a number
        return Itself(self._peer_id, n_blocks, self.server_info.throughput, span, self._meter.cost())

    @property
    def _here(self) -> Span:
        if self._span is None:
            raise RuntimeError("the server has not joined yet")
        return self._span

    def _tools(self) -> Tools:
        return Tools(
            shelf=self._shelf,
            say=self._announcer.say,
            loads=self._loads,
            clock=get_dht_time,
            gates=self._gates,
            events=self._events,
            meter=self._meter,
            visible_s=self._options.visible_s,
            drain_s=self._options.drain_s,
            load_deadline_s=self._options.load_deadline_s,
            stopping=self.stop,
        )

    def _usual_wait_s(self) -> float:
        return self._waits.uniform(0, 2 * self.mean_balance_check_period)

    def _tell_state(self, state: str) -> None:
        self._events.emit("servers", **state_row(state, self._peer_id, self._span, self._shelf.modules()))


def server(args: Mapping[str, Any], channel: str) -> None:
    """As ``children.server``.

    :param args: ``argv``; what ``serving.options`` takes; ``events_path``, ``gate_dir``, ``read_delay_s``
    :raises BadInput: for an option that cannot be
    """
    options = options_of(args)
    slow_disk.install(float(args.get("read_delay_s", 0.0)))
    local_checkpoint.fail_at_once()
    graph_capture.watch_only_the_recording_thread()
    entry: Any = children.run_server
    entry.Server = functools.partial(
        Server,
        options=options,
        events=EventLog(args.get("events_path")),
        gates=Gates(args.get("gate_dir")),
        loader_of=functools.partial(loader_of, args),
    )
    children.server({"argv": args["argv"]}, channel)
