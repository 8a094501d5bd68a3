"""What one simulated server does: it joins, loads, serves, checks, reloads, and one day is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import simpy

from swarmlab.placement.cost import LoadCost
from swarmlab.placement.policy import Server
from swarmlab.sim.checks import CheckTimes
from swarmlab.sim.holder import Holder
from swarmlab.sim.population import CHECKS, DELAYS, LAPSES, POLICIES, Ending, generator
from swarmlab.sim.reload import steps
from swarmlab.sim.rows import decision_row
from swarmlab.types import ServerRecord, ServerState, Span

if TYPE_CHECKING:
    from numpy.random import Generator
    from simpy.events import ProcessGenerator

    from swarmlab.placement.memory import Memory
    from swarmlab.sim.population import Member
    from swarmlab.sim.world import World
    from swarmlab.types import Decision, Intent

LAPSE_S = (30.0, 120.0)
HOLE = "hole"  # why a server checks before it is time
GOLDEN = 0.618033988749895  # multiples of it, less whole numbers, are spread evenly


class ServerLife(Holder):
    """All visits of one member to one world. ``run`` is its SimPy process.

    :param index: place in the population, which names its streams of random numbers
    :ivar movable: False for one whose blocks are fixed
    """

    def __init__(self, world: World, member: Member, index: int) -> None:
        super().__init__(world, member)
        cost = world.settings
        self.load = LoadCost(cost.s_per_block, cost.s_per_move, keeps_overlap=world.arm.keeps_overlap)
        self._index = index
        self._checks = CheckTimes(world.settings, self._generator(CHECKS))
        self._draws, self._delays = self._generator(POLICIES), self._generator(DELAYS)
        self._memory: Memory | None = None
        self._before: Memory | None = None
        self.movable = True
        self._waits, self._phase = False, index * GOLDEN % 1.0
        world.lives.append(self)
        self._record: ServerRecord | None = None
        self._known: Server | None = None

    def _generator(self, concern: int) -> Generator:
        return generator(self.world.seed, concern, self._index)

    def run(self) -> ProcessGenerator:
        """Come and go as the schedule says."""
        world = self.world
        if world.settings.lapses_per_hour > 0:
            world.env.process(self._lapse())
        for visit in self.member.visits:
            if visit.start_s >= world.settings.duration_s:
                return
            yield world.env.timeout(visit.start_s - world.now_s)
            life = self._life = world.env.process(self._live())
            if visit.end_s >= world.settings.duration_s:
                return
            yield world.env.timeout(visit.end_s - world.now_s)
            life.interrupt(visit.ending)
            yield life

    def _live(self) -> ProcessGenerator:
        self.world.present[self.member.name] = self.member
        self.world.dht.begin_renewing(self.member.name, self.world.now_s)
        try:
            if self.member.held is not None and self.world.now_s == 0:
                self._hold(self.member.held)
            else:
                yield from self._choose_and_load(None)
            wait_s = self._checks.first_s()
            while True:
                yield from self._wait(wait_s)
                decision = self._check()
                wait_s = decision.check_again_s
                if decision.moved:
                    yield from self._carry_out(decision)
                    wait_s = self._checks.after_setbacks_s()
                wait_s = self._checks.next_s() if wait_s is None else wait_s
        except simpy.Interrupt as interrupt:
            self._end(Ending(interrupt.cause))

    def _wait(self, wait_s: float) -> ProcessGenerator:
        self._waits = True
        try:
            yield self.world.env.timeout(wait_s)
        except simpy.Interrupt as interrupt:
            if interrupt.cause is not HOLE:
                raise
        finally:
            self._waits = False

    def watch(self, watch_s: float) -> ProcessGenerator:
        """One of the looks between checks, at this server's own moment within the next ``watch_s``."""
        world = self.world
        yield world.env.timeout(watch_s * self._phase)
        if self._waits and not self._checks.setbacks and world.must_check(self._server(), self._memory):
            self._life.interrupt(HOLE)

    def _hold(self, span: Span) -> None:
        # It is there, with all blocks loaded, when the simulation begins.
        self.span = span
        self._serve(span)
        self._announce(span, ServerState.ONLINE)
        self._log_state(ServerState.ONLINE)

    def _check(self) -> Decision:
        world, intent = self.world, self._record.intent if self._record else None
        world.n_checks += 1
        view, server = world.dht.view(world.now_s), self._server()
        self._before = memory = world.ask(view, server, self._memory)
        decision = world.arm.policy.reconsider(view, server, memory, self._draws)
        self._memory = decision.memory
        if decision.moved or decision.intent != intent:
            self._log_decision("check", decision, decision.target if decision.keeps_target else None)
        if not decision.moved and decision.intent != intent:
            self._announce(self.span, ServerState.ONLINE, decision.intent)
        return decision

    def _carry_out(self, decision: Decision) -> ProcessGenerator:
        if decision.intent is not None and self.world.news_take_time:
            yield from self._look_again(decision, decision.intent)
            if self._record is None or self._record.intent is None:
                self._checks.setbacks += 1
                return
        self._checks.setbacks = 0
        if decision.keeps_target:
            yield from self._change(self.span, decision.target)
            return
        # the original: offline first, then a new choice from whatever is seen by then
        old = self.span
        self._begin_reload(old)
        self._serve(None)
        self._announce(old, ServerState.OFFLINE)
        self._log_state(ServerState.OFFLINE)
        yield from self._choose_and_load(old)

    def _look_again(self, decision: Decision, intent: Intent) -> ProcessGenerator:
        # A move that was not announced before: say so, and withdraw it if something speaks against it by then.
        world, then = self.world, self.world.dht.view(self.world.now_s)
        self._announce(self.span, ServerState.ONLINE, intent)
        yield world.env.timeout(world.settings.announce_delay_s + world.settings.view_age_s)
        if world.objection(self._server(), decision, intent, then):
            self._announce(self.span, ServerState.ONLINE)
            self._memory = replace(self._before, wish=None, testimony=None) if self._before else None
            self._log_decision("withdraw", replace(decision, moved=False, intent=None), None)

    def _choose_and_load(self, old: Span | None) -> ProcessGenerator:
        world = self.world
        mean_s = world.settings.mean_choice_delay_s
        if mean_s > 0:
            yield world.env.timeout(self._delays.uniform(0, 2 * mean_s))
        view = world.dht.view(world.now_s)
        self.span = None
        decision = world.arm.policy.choose(view, self._server(), self._draws)
        self._memory = decision.memory or self._memory
        self._log_decision("join" if old is None else "choose", replace(decision, old=old), decision.target)
        yield from self._change(old, decision.target)

    def _change(self, old: Span | None, new: Span) -> ProcessGenerator:
        # `old` is what it served before; where that was unloaded already, a reload is under way
        reload = self._reload or self._begin_reload(old)
        unloaded = self.member.name not in self.world.serving
        plan = steps(None if unloaded else old, new, self.load)
        reload.new, reload.kept = new, 0 if old is None or unloaded else plan[0].kept
        self._announce(new, ServerState.JOINING)
        self.span = new
        for step in plan:
            yield from self._load(step, reload)
        self._serve(new)
        self._end_reload(completed=True)
        self._announce(new, ServerState.ONLINE)
        self._log_state(ServerState.ONLINE)

    def _end(self, ending: Ending) -> None:
        self._end_reload(completed=False)
        self._serve(None)
        del self.world.present[self.member.name]
        if ending is Ending.LEAVE and self._record is not None:
            self._announce(self._record.span, ServerState.OFFLINE)
        self._log_state(ending)
        self.world.dht.end_renewing(self.member.name, self.world.now_s)
        self.world.watch_holes()
        self.span, self._memory, self._record, self._checks.setbacks = None, None, None, 0

    def _announce(self, span: Span | None, state: ServerState, intent: Intent | None = None) -> None:
        if span is None:
            return
        expires_at_s = self.world.now_s + self.world.settings.expiration_s
        self._record = ServerRecord(
            self.member.name,
            span,
            self.member.throughput_tps,
            state,
            expires_at_s=expires_at_s,
            intent=intent,
            movable=self.movable,
        )
        self.world.announce(self._record)

    def _lapse(self) -> ProcessGenerator:
        mean_gap_s, draws = 3600.0 / self.world.settings.lapses_per_hour, self._generator(LAPSES)
        while True:
            yield self.world.env.timeout(draws.exponential(mean_gap_s))
            self.world.dht.hide(self.member.name, self.world.now_s + draws.uniform(*LAPSE_S))

    def _server(self) -> Server:
        if self._known is None or self._known.span != self.span:
            self._known = Server(
                self.member.name, self.width, self.member.throughput_tps, self.span, self.load
            )
        return self._known

    def _log_decision(self, phase: str, decision: Decision, chosen: Span | None) -> None:
        self.world.log("decisions", **decision_row(self.member.name, phase, decision, chosen))
