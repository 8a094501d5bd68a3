"""What one simulated server does: it joins, loads, serves, checks, reloads, and one day is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import simpy

from swarmlab.placement.cost import LoadCost
from swarmlab.placement.policy import Server, wait_after_setbacks_s
from swarmlab.sim.account import ReloadAccount
from swarmlab.sim.population import CHECKS, DELAYS, LAPSES, POLICIES, Ending, generator
from swarmlab.sim.reload import steps
from swarmlab.types import ServerRecord, ServerState, Span

if TYPE_CHECKING:
    from simpy.events import ProcessGenerator

    from swarmlab.placement.memory import Memory
    from swarmlab.sim.population import Member
    from swarmlab.sim.reload import Step
    from swarmlab.sim.world import World
    from swarmlab.types import Decision, Intent

LAPSE_S = (30.0, 120.0)
HOLE = "hole"  # why a server checks before it is time
GOLDEN = 0.618033988749895  # multiples of it, less whole numbers, are spread evenly


class ServerLife:
    """All visits of one member to one world. ``run`` is its SimPy process.

    :param index: place in the population, which names its streams of random numbers
    :ivar movable: False for one whose blocks are fixed
    """

    def __init__(self, world: World, member: Member, index: int) -> None:
        self.world, self.member = world, member
        self.width = min(member.n_blocks, world.settings.n_blocks)
        cost = world.settings
        self.load = LoadCost(cost.s_per_block, cost.s_per_move, keeps_overlap=world.arm.keeps_overlap)
        self._checks, self._draws, self._delays, self._lapses = (
            generator(world.seed, concern, index) for concern in (CHECKS, POLICIES, DELAYS, LAPSES)
        )
        self.span: Span | None = None
        self._memory: Memory | None = None
        self._before: Memory | None = None
        self.movable = True
        self._waits, self._phase = False, index * GOLDEN % 1.0
        self._setbacks = 0  # moves in a row that were not made
        world.lives.append(self)
        self._record: ServerRecord | None = None
        self._known: Server | None = None
        self._reload: ReloadAccount | None = None

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
            wait_s = self._first_check_s()
            while True:
                yield from self._wait(wait_s)
                decision = self._check()
                wait_s = decision.check_again_s
                if decision.moved:
                    yield from self._carry_out(decision)
                    wait_s = self._wait_after_setbacks_s()
                wait_s = self._next_check_s() if wait_s is None else wait_s
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
        if self._waits and not self._setbacks and world.must_check(self._server(), self._memory):
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
                self._setbacks += 1
                return
        self._setbacks = 0
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

    def _load(self, step: Step, reload: ReloadAccount) -> ProcessGenerator:
        self._serve(step.serving)
        self._log_state(ServerState.JOINING)
        if step.seconds > 0:
            yield self.world.env.timeout(step.seconds)
        reload.load(step.blocks)

    def _serve(self, span: Span | None) -> None:
        # What is not served is counted up to now with what was served until now.
        self._count_lost()
        self.world.serve(self.member.name, span)

    def _count_lost(self) -> None:
        if self._reload is not None:
            served = self.world.serving.get(self.member.name)
            self._reload.count(self.world.now_s, self.width - (served.length if served else 0))

    def _begin_reload(self, old: Span | None) -> ReloadAccount:
        self._reload = ReloadAccount(old, self.world.now_s)
        self.world.loading.add(self.member.name)
        return self._reload

    def _end_reload(self, *, completed: bool) -> None:
        if self._reload is None:
            return
        self._count_lost()
        row = self._reload.row(self.world.now_s, completed=completed)
        self.world.log("reloads", server=self.member.name, throughput_tps=self.member.throughput_tps, **row)
        self._reload = None
        self.world.loading.discard(self.member.name)

    def _end(self, ending: Ending) -> None:
        self._end_reload(completed=False)
        self._serve(None)
        del self.world.present[self.member.name]
        if ending is Ending.LEAVE and self._record is not None:
            self._announce(self._record.span, ServerState.OFFLINE)
        self._log_state(ending)
        self.world.dht.end_renewing(self.member.name, self.world.now_s)
        self.world.watch_holes()
        self.span, self._memory, self._record, self._setbacks = None, None, None, 0

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
        mean_gap_s = 3600.0 / self.world.settings.lapses_per_hour
        while True:
            yield self.world.env.timeout(self._lapses.exponential(mean_gap_s))
            self.world.dht.hide(self.member.name, self.world.now_s + self._lapses.uniform(*LAPSE_S))

    def _server(self) -> Server:
        if self._known is None or self._known.span != self.span:
            self._known = Server(
                self.member.name, self.width, self.member.throughput_tps, self.span, self.load
            )
        return self._known

    def _first_check_s(self) -> float:
        mean_s = self.world.settings.check_period_s
        return self._checks.uniform(0, 2 * mean_s if self.world.settings.check_evenly else mean_s)

    def _next_check_s(self) -> float:
        mean_s = self.world.settings.check_period_s
        return self._checks.uniform(0, 2 * mean_s) if self.world.settings.check_evenly else mean_s

    def _wait_after_setbacks_s(self) -> float | None:
        period_s = self.world.settings.check_period_s
        return wait_after_setbacks_s(period_s, self._setbacks) if self._setbacks else None

    def _log_decision(self, phase: str, decision: Decision, chosen: Span | None) -> None:
        self.world.log(
            "decisions",
            server=self.member.name,
            phase=phase,
            policy=decision.policy,
            moved=decision.moved,
            old=None if decision.old is None else str(decision.old),
            target=str(decision.target),
            chosen=None if chosen is None else str(chosen),
            intent=None if decision.intent is None else str(decision.intent.span),
            reason=decision.reason,
            predicted_gain=decision.predicted_tps - decision.expected_stay_tps,
        )

    def _log_state(self, state: str) -> None:
        served = self.world.serving.get(self.member.name)
        self.world.log(
            "servers",
            server=self.member.name,
            state=str(state),
            start=self.span.start if self.span else None,
            end=self.span.end if self.span else None,
            serving_start=served.start if served else None,
            serving_end=served.end if served else None,
        )
