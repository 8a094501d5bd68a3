"""One arm of +exp=rebalance: starts its swarm, lets the same things happen to it, records what the servers do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle, Steps
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.records import Join, RecordsLost
from swarmlab.faults.schedule import Fault
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.rebalance_clients import LoadClient
from swarmlab.scenarios.rebalance_plan import Place, Starter
from swarmlab.scenarios.rebalance_swarm import JOIN_S, recorded_swarm, wait
from swarmlab.scenarios.rebalance_watch import Recording
from swarmlab.swarm.deploy import Swarm
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.swarm.spec import SwarmSpec
from swarmlab.workload.requests import Bounds

LAPSE_S = 15.0
CALM_S, AFTER_S = 3.0, 4.0  # before anything happens, and after a slow move is done
SLOW_MOVE_S = 60.0  # beside what its blocks take


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
        with self._swarm(starter, places, [wide], scenarios[0]) as (swarm, recording):
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
        with self._swarm(starter, places, [], plan.SLOW_DISK) as (swarm, recording):
            self.progress.begin(plan.SLOW_DISK, arm)
            with recording.phase(plan.SLOW_DISK):
                starter.slow_when.touch()
                time.sleep(CALM_S)
                killed_s = time.monotonic()
                self._perform(recording, swarm, Fault.KILL, plan.SLOW_KILLED)
                most_s = SLOW_MOVE_S + places[-1].span.length * self.settings.slow_read_delay_s
                wait(lambda: recording.reloaded(plan.MOVER, since_s=killed_s), most_s)
                time.sleep(AFTER_S)
            self._say(plan.SLOW_DISK, recording)

    def _starter(self, arm: str, name: str, read_delay_s: float) -> Starter:
        folder = (self.run_dir.path / "swarms" / f"{name}.{arm}").resolve()
        folder.mkdir(parents=True)
        return Starter(arm, self.settings, folder, read_delay_s, self.seed)

    def _swarm(
        self, starter: Starter, places: Sequence[Place], later: Sequence[Place], scenario: str
    ) -> AbstractContextManager[tuple[Swarm, Recording]]:
        return recorded_swarm(self.swarm, starter, places, later, scenario, self.run_dir, self.progress)

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
            wait(lambda: recording.moved(since_s=since_s), scaled(self.settings.lost_s))
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
