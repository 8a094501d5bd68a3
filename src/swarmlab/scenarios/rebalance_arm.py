"""One arm of +exp=rebalance: starts its swarm, lets the same things happen to it, records what the servers do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle, Steps
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.records import Join, RecordsLost
from swarmlab.faults.schedule import Fault
from swarmlab.record.rundir import RunDir
from swarmlab.record.sampler import Sampler
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.rebalance_clients import Delivered, LoadClient
from swarmlab.scenarios.rebalance_plan import Place, Starter
from swarmlab.scenarios.rebalance_watch import TAIL_S, Recording
from swarmlab.swarm import ready
from swarmlab.swarm.deploy import Swarm, deploy
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.swarm.spec import SwarmSpec
from swarmlab.types import ServerState
from swarmlab.workload.requests import Bounds

JOIN_S, ONLINE_S, LAPSE_S = 60.0, 90.0, 15.0
CALM_S, AFTER_S = 3.0, 4.0  # before anything happens, and after a slow move is done
SLOW_MOVE_S = 60.0  # beside what its blocks take
IMBALANCED = "Swarm is imbalanced, server will load other blocks"  # petals' own line about a decision to move


@dataclass(frozen=True)
class ArmRun:
    """What all arms share.

    :param swarm: without servers yet
    :param client_args: for the process of a client, but for the swarm's address
    """

    swarm: SwarmSpec
    settings: RebalanceSettings
    bounds: Bounds
    client_args: Mapping[str, Any]
    deadline_s: float
    seed: int
    run_dir: RunDir
    progress: Progress

    def main(self, arm: str, scenarios: Sequence[str]) -> None:
        """One swarm to which everything but ``slow_disk`` happens, one thing after the other.

        :raises SwarmFailed: if servers do not start, or a client's thread fails
        """
        places = [place.scaled(self.swarm.n_blocks) for place in plan.SWARM]
        wide = plan.WIDE.scaled(self.swarm.n_blocks)
        starter = self._starter(arm, "swarm", self.settings.read_delay_s)
        happen: dict[str, Callable[[Swarm, Recording, Starter], None]] = {
            plan.RECORDS_LOST: self._lose_records,
            plan.GAP: self._open_gap,
            plan.WIDE_JOINS: partial(self._join_wide, wide),
        }
        with self._recorded(starter, places, [*places, wide], scenarios[0]) as (swarm, recording):
            starter.slow_when.touch()
            with self._generating(swarm, recording):
                for scenario in scenarios:
                    self.progress.begin(scenario, arm)
                    with recording.phase(scenario):
                        happen[scenario](swarm, recording, starter)
                    self._say(scenario, recording)

    def slow_disk(self, arm: str) -> None:
        """A server of 20 blocks has to move by two, from a disk that takes seconds for each block.

        :raises SwarmFailed: if servers do not start
        """
        places = [place.scaled(self.swarm.n_blocks) for place in plan.SLOW_SWARM]
        starter = self._starter(arm, plan.SLOW_DISK, self.settings.slow_read_delay_s)
        with self._recorded(starter, places, places, plan.SLOW_DISK) as (swarm, recording):
            self.progress.begin(plan.SLOW_DISK, arm)
            with recording.phase(plan.SLOW_DISK):
                starter.slow_when.touch()
                time.sleep(CALM_S)
                killed_s = time.monotonic()
                self._perform(recording, swarm, Fault.KILL, plan.SLOW_KILLED)
                most_s = SLOW_MOVE_S + places[-1].span.length * self.settings.slow_read_delay_s
                _wait(lambda: recording.reloaded(plan.MOVER, since_s=killed_s), most_s)
                time.sleep(AFTER_S)
            self._say(plan.SLOW_DISK, recording)

    def _starter(self, arm: str, name: str, read_delay_s: float) -> Starter:
        folder = (self.run_dir.path / "swarms" / f"{name}.{arm}").resolve()
        folder.mkdir(parents=True)
        return Starter(arm, self.settings, folder, read_delay_s, self.seed)

    @contextmanager
    def _recorded(
        self, starter: Starter, places: Sequence[Place], possible: Sequence[Place], scenario: str
    ) -> Iterator[tuple[Swarm, Recording]]:
        """A running swarm whose servers hold what they should, watched."""
        specs = [starter.spec(place, number) for number, place in enumerate(places)]
        scaled = self.settings.scaled
        spec = replace(
            self.swarm,
            servers=tuple(specs[:1]),
            update_period_s=scaled(self.settings.update_period_s),
            expiration_s=scaled(self.settings.expiration_s),
        )
        up = threading.Event()
        history, arm = self.run_dir.history, starter.arm

        def note(name: str, state: str, detail: str) -> None:
            history.write(
                "servers", arm, scenario=scenario, server=name, state=state, detail=detail, source="process"
            )
            if not up.is_set():
                self.progress.on_state(name, state, detail)

        with ExitStack() as stack:
            swarm = stack.enter_context(deploy(spec, starter.folder, on_state=note, wait=False, whole=False))
            recording = Recording(
                history,
                arm,
                swarm,
                {place.name: place for place in possible},
                Delivered(),
                scenario,
                self.seed,
            )
            tail = stack.enter_context(Sampler(recording.tail, TAIL_S, "tail"))
            self._start(swarm, recording, places, specs)
            looks = stack.enter_context(Sampler(recording.look, self.settings.sample_every_s, "looks"))
            up.set()
            yield swarm, recording
            if failure := tail.failure or looks.failure:
                raise SwarmFailed(f"the swarm could not be watched: {failure}")
            recording.tail()
            _note_lines(recording, swarm)

    @staticmethod
    def _start(swarm: Swarm, recording: Recording, places: Sequence[Place], specs: Sequence[Any]) -> None:
        """One server after the other, so that each one's own choice is the span that it should begin with."""
        for place, spec in zip(places, specs, strict=True):
            if place.name not in swarm.servers:
                swarm.add(spec)
            record = _wait(partial(_announced, swarm, recording, place.name), JOIN_S)
            if record is None:
                raise SwarmFailed(
                    f"not announced within {JOIN_S:.0f} s: {swarm.servers[place.name].report()}"
                )
            if record.span != place.span:
                raise SwarmFailed(f"{place.name} chose blocks {record.span} instead of {place.span}")
        swarm.wait_ready(deadline_s=ONLINE_S)

    @contextmanager
    def _generating(self, swarm: Swarm, recording: Recording) -> Iterator[None]:
        """Clients that generate until the end of the block."""
        args = {**self.client_args, "initial_peers": swarm.initial_peers}
        clients = [
            LoadClient(
                swarm=swarm,
                arm=recording.arm,
                name=f"client-{number}",
                number=number,
                history=self.run_dir.history,
                args=args,
                bounds=self.bounds,
                seed=self.seed,
                until_s=float("inf"),
                deadline_s=self.deadline_s,
                on_end=lambda _: None,
                where=lambda: recording.scenario,
                delivered=recording.delivered,
            )
            for number in range(self.settings.clients)
        ]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            for client in clients:
                client.leave()
        if failures := [client.failure for client in clients if client.failure]:
            raise SwarmFailed("; ".join(failures))

    def _lose_records(self, swarm: Swarm, recording: Recording, starter: Starter) -> None:
        """The report's case: a decision taken while records are missing, which are back before the next choice.

        The records are missing until some server has decided, at most ``lost_s``; whoever decides meanwhile is held,
        serving on, until they are back.
        """
        time.sleep(CALM_S)
        name, scaled = plan.LOST, self.settings.scaled
        deadline_s = scaled(self.settings.expiration_s + self.settings.update_period_s) + LAPSE_S
        lost = RecordsLost(
            name, starter.gate(name, "announce"), swarm, partial(recording.record_of, name), deadline_s
        )
        lifecycle = self._lifecycle(recording, swarm, lost, "records_lost", name)
        gates = [starter.gate(place.name, "decided") for place in plan.SWARM if place.free]
        with recording.hiding(name), _closed(gates):
            since_s = time.monotonic()
            _try(lifecycle.setup, lifecycle.inject, lifecycle.confirm)
            _wait(lambda: recording.moved(since_s=since_s), scaled(self.settings.lost_s))
            if lifecycle.valid:
                _try(lifecycle.heal)
        lifecycle.cleanup()
        time.sleep(self.settings.settle_s)

    def _open_gap(self, swarm: Swarm, recording: Recording, _: Starter) -> None:
        """Two servers die, one of them the only holder of its blocks."""
        for name in plan.KILLED:
            self._perform(recording, swarm, Fault.KILL, name)
        time.sleep(self.settings.gap_s)

    def _join_wide(self, place: Place, swarm: Swarm, recording: Recording, starter: Starter) -> None:
        """A server that holds two thirds of the model comes, and leaves the end of it the weakest part."""
        spec = starter.spec(place, len(plan.SWARM), joins_late=True)
        join = Join(place.name, lambda: swarm.add(spec), partial(recording.record_of, place.name), JOIN_S)
        lifecycle = self._lifecycle(recording, swarm, join, "join", place.name)
        started_s = time.monotonic()
        _try(lifecycle.setup, lifecycle.inject, lifecycle.confirm)
        time.sleep(max(0.0, started_s + self.settings.wide_s - time.monotonic()))

    def _perform(self, recording: Recording, swarm: Swarm, fault: Fault, name: str) -> None:
        server = swarm.servers[name]
        steps = ProcessFault(fault, name, swarm, lambda: server.pgid)
        lifecycle = self._lifecycle(recording, swarm, steps, fault.value, name)
        _try(lifecycle.setup, lifecycle.inject, lifecycle.confirm)  # the swarm ends with it: nothing to heal

    @staticmethod
    def _lifecycle(recording: Recording, swarm: Swarm, steps: Steps, fault: str, name: str) -> Lifecycle:
        record = recording.record_of(name)
        about = {
            "fault": fault,
            "target": name,
            "peer": record.peer_id if record else None,
            "span_start": record.span.start if record else None,
            "span_end": record.span.end if record else None,
            "at_token": None,
        }
        del swarm
        return Lifecycle(steps, lambda row: recording.write("faults", **row), about)

    def _say(self, scenario: str, recording: Recording) -> None:
        reloads = [
            row for row in recording.told if row["kind"] == "reloads" and row.get("old_start") is not None
        ]
        no_ops = sum(bool(row["no_op"]) for row in reloads)
        self.progress.end(
            scenario, recording.arm, "done", f"{len(reloads)} moves so far, {no_ops} for nothing"
        )


def _try(*stages: Callable[[], None]) -> None:
    """Stages of a fault until one fails: that is recorded, and the judge will not call the run a pass."""
    try:
        for stage in stages:
            stage()
    except FaultFailed:
        return


def _wait(predicate: Callable[[], Any], deadline_s: float) -> Any:
    """What the predicate gives once it is true; None at the deadline."""
    try:
        return ready.wait_for(predicate, deadline_s, "")
    except TimeoutError:
        return None


def _announced(swarm: Swarm, recording: Recording, name: str) -> Any:
    if not swarm.servers[name].alive:
        raise SwarmFailed(swarm.servers[name].report())
    record = recording.record_of(name)
    return record if record is not None and record.state is not ServerState.OFFLINE else None


@contextmanager
def _closed(gates: Sequence[Path]) -> Iterator[None]:
    for gate in gates:
        gate.parent.mkdir(parents=True, exist_ok=True)
        gate.touch()
    try:
        yield
    finally:
        for gate in gates:
            gate.unlink(missing_ok=True)


def _note_lines(recording: Recording, swarm: Swarm) -> None:
    """Petals' own words about its decisions to move: the judge holds them against what was watched."""
    for name, handle in swarm.servers.items():
        if not handle.log_path.exists():
            continue
        for line in handle.log_path.read_text(errors="replace").splitlines():
            if IMBALANCED in line:
                recording.write("logs", source=name, level="info", line=line, about="imbalanced")
