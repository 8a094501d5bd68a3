"""The simulated swarm that all its servers share: the clock, the DHT, who really serves what, and the history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from swarmlab.placement.grace import without_gone
from swarmlab.placement.layout import block_sums, layout_of
from swarmlab.placement.memory import Memory
from swarmlab.placement.objection import gain, objection
from swarmlab.placement.policy import Asking
from swarmlab.placement.testimony import Answer, Answers
from swarmlab.sim.dht import Dht
from swarmlab.sim.oracle import Oracle, Truth
from swarmlab.types import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from simpy.events import ProcessGenerator

    from swarmlab.placement.layout import Floats
    from swarmlab.placement.policy import Policy, Server
    from swarmlab.sim.population import Member
    from swarmlab.sim.processes import ServerLife
    from swarmlab.sim.settings import SimSettings
    from swarmlab.types import Decision, Intent, ServerRecord, Span, SwarmView

TIME_DIGITS = 3  # of a second: far below any modelled time


@dataclass(frozen=True)
class Arm:
    """What is compared: a policy, and the kind of server that carries it out.

    :param keeps_overlap: True if blocks in both spans stay loaded and go on serving; unmodified Petals unloads all
    """

    name: str
    policy: Policy
    keeps_overlap: bool = False


class CountingEnvironment(simpy.Environment):
    """Counts what it has done, for whoever asks how fast a simulation is."""

    n_steps = 0

    def step(self) -> None:
        self.n_steps += 1
        super().step()


@dataclass
class World:
    """State of one simulated swarm.

    :param serving: the blocks each present server really serves; servers that serve nothing are not in it
    :param present: servers that are in the swarm, by name
    :param lives: all servers of the population, there or not
    :param history: what has happened, in order
    :param observers: told of each change of what a server serves, by its name and its blocks (None for none)
    """

    arm: Arm
    settings: SimSettings
    seed: int
    env: CountingEnvironment = field(default_factory=CountingEnvironment)
    serving: dict[str, Span] = field(default_factory=dict)
    present: dict[str, Member] = field(default_factory=dict)
    loading: set[str] = field(default_factory=set)
    lives: list[ServerLife] = field(default_factory=list, repr=False)
    history: list[Event] = field(default_factory=list)
    observers: list[Callable[[str, Span | None], None]] = field(default_factory=list, repr=False)
    n_checks: int = 0

    def __post_init__(self) -> None:
        sim = self.settings
        news = (sim.n_blocks, sim.view_age_s, sim.update_period_s, sim.expiration_s, sim.announce_delay_s)
        policy = self.arm.policy
        self._asking = policy if isinstance(policy, Asking) else None
        self._holders = np.zeros(sim.n_blocks, dtype=np.int64)
        self._watching = False
        self.dht = (
            Truth(*news, present=self.present, ends_s=policy.ends_s)
            if isinstance(policy, Oracle)
            else Dht(*news)
        )

    @property
    def now_s(self) -> float:
        return float(self.env.now)

    @property
    def news_take_time(self) -> bool:
        """Whether an announcement made now may be seen later than now, or a view read now be older."""
        return self.settings.announce_delay_s > 0 or self.settings.view_age_s > 0

    def serve(self, name: str, span: Span | None) -> None:
        """From now on the server serves this, or nothing."""
        before = self.serving.pop(name, None)
        if before is not None:
            self._holders[before.start : before.end] -= 1
        if span is not None:
            self.serving[name] = span
            self._holders[span.start : span.end] += 1
        for observe in self.observers:
            observe(name, span)

    def watch_holes(self) -> None:
        """A server has gone: if some block has nobody now, looks between checks matter until it has somebody.

        All others would find nothing, so they are not simulated.
        """
        watch_s = self._asking.watch_s if self._asking else float("inf")
        if watch_s < float("inf") and not self._watching and not self._holders.all():
            self._watching = True
            self.env.process(self._watch_holes(watch_s))

    def _watch_holes(self, watch_s: float) -> ProcessGenerator:
        while not self._holders.all():
            for life in self.lives:
                if life.member.name in self.serving:
                    self.env.process(life.watch(watch_s))
            yield self.env.timeout(watch_s)
        self._watching = False

    def must_check(self, server: Server, memory: Memory | None) -> bool:
        """Whether the policy, if it looked now, would want to check at once."""
        return self._asking is not None and self._asking.must_check(self.dht.view(self.now_s), server, memory)

    def ask(self, view: SwarmView, server: Server, memory: Memory | None) -> Memory | None:
        """The memory, with what servers in doubt answer if the policy asks; who is gone has nobody left to answer."""
        doubtful = self._asking.whom_to_ask(view, server, memory) if self._asking else ()
        if not doubtful:
            return memory
        answers = {record.peer_id: self._answer(record) for record in doubtful}
        return replace(memory or Memory(), testimony=Answers(answers))

    def _answer(self, record: ServerRecord) -> Answer:
        if record.peer_id not in self.present:
            return Answer.REFUSED
        serves = self.serving.get(record.peer_id)
        return Answer.SERVES if serves is not None and serves.covers(record.span) else Answer.LEFT

    def objection(self, server: Server, decision: Decision, intent: Intent, then: SwarmView) -> str | None:
        """What speaks now against a move that was decided on the view ``then``, if anything."""
        known, old = decision.memory, decision.old
        assert old is not None
        return objection(
            without_gone(self.dht.view(self.now_s), known),
            server,
            old,
            intent.span,
            leaving=tuple(block for block in old if block not in intent.span),
            intent=intent,
            gain_then=gain(without_gone(then, known), server, old, intent.span, intent),
        )

    def log(self, kind: str, **fields: Any) -> None:
        """Append one row to the history."""
        self.history.append(Event(round(self.now_s, TIME_DIGITS), kind, self.arm.name, fields))

    def announce(self, record: ServerRecord) -> None:
        """Store a record in the DHT, where others find it after ``announce_delay_s``."""
        if self.settings.announce_delay_s == 0:
            self.dht.store(record)
        else:
            self.env.process(self._spread(record))

    def _spread(self, record: ServerRecord) -> ProcessGenerator:
        yield self.env.timeout(self.settings.announce_delay_s)
        self.dht.store(record)

    def served_tps(self) -> Floats:
        """Tokens/s that can really pass through each block now."""
        names = sorted(self.serving)
        spans = [self.serving[name] for name in names]
        return block_sums(
            np.array([span.start for span in spans], dtype=np.int64),
            np.array([span.end for span in spans], dtype=np.int64),
            np.array([self.present[name].throughput_tps for name in names], dtype=np.float64),
            self.settings.n_blocks,
        )

    def sample(self) -> ProcessGenerator:
        """Record the throughput of the swarm at even intervals, and of each block at longer ones."""
        next_blocks_s = 0.0
        yield self.env.timeout(0)  # whoever joins at the very start is there
        while True:
            view = self.dht.view(self.now_s)
            served, announced = self.served_tps(), layout_of(view).throughput_tps
            self.log(
                "balance",
                swarm_tps=float(served.min()),
                announced_swarm_tps=float(announced.min()),
                n_active=len(self.present),
                capacity_block_tps=self._capacity_block_tps(),
                n_moving=len(self.loading),
                blocks_unserved=int((served <= 0).sum()),
                n_checks=self.n_checks,
            )
            if self.now_s >= next_blocks_s:
                next_blocks_s += self.settings.blocks_every_s
                self._log_blocks(served, announced)
            yield self.env.timeout(self.settings.sample_every_s)

    def _capacity_block_tps(self) -> float:
        # What all present servers could do, blocks times tokens/s.
        return sum(
            member.throughput_tps * min(member.n_blocks, self.settings.n_blocks)
            for _, member in sorted(self.present.items())
        )

    def _log_blocks(self, served: Floats, announced: Floats) -> None:
        holders = np.zeros(len(served), dtype=np.int64)
        for span in self.serving.values():
            holders[span.start : span.end] += 1
        for block, count in enumerate(holders.tolist()):
            self.log(
                "blocks",
                block=block,
                announced_tps=float(announced[block]),
                served_tps=float(served[block]),
                n_servers=count,
            )
