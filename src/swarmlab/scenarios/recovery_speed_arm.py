"""One arm of +exp=recovery_speed: gives its client one session after another, and cuts servers off in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from swarmlab.analysis.recovery_speed_grid import Cell
from swarmlab.channel import Channel, ChannelClosed, Message
from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle, Stage
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.schedule import Fault
from swarmlab.record.writer import HistoryWriter
from swarmlab.scenarios.experiment import Progress
from swarmlab.swarm.deploy import Swarm

CONNECT_S = 60.0
EVENTS = {"failover": "failovers", "floor": "floors", "log": "logs", "result": "outcomes"}


@dataclass
class SpeedArm:
    """One client process for all cells of an arm.

    :param args: for the process
    :param deadline_s: for one session; what takes longer ends the run
    """

    swarm: Swarm
    arm: str
    cells: Sequence[Cell]
    repeats: int
    history: HistoryWriter
    args: dict[str, Any]
    deadline_s: float
    progress: Progress
    _cell: Cell = field(default_factory=lambda: Cell(0, 0), init=False)
    _repeat: int = field(default=0, init=False)
    _outcome: str = field(default="lost", init=False)

    def run(self) -> None:
        """
        :raises SwarmFailed: if the client or the swarm breaks
        """
        child = self.swarm.spawn("clients.speed", f"client-{self.arm}", self.args)
        try:
            channel = child.channel(CONNECT_S)
            channel.recv(CONNECT_S)  # its first ``next``: it has loaded its model
            for cell in self.cells:
                self._run_cell(channel, cell)
            channel.send({"stop": True})
        except (ChannelClosed, TimeoutError) as error:
            raise SwarmFailed(f"{self._cell.name} / {self.arm}: the client is lost: {error}") from error
        finally:
            self.swarm.kill_child(child)
            child.close()

    def _run_cell(self, channel: Channel, cell: Cell) -> None:
        self._cell, outcomes = cell, []
        self.progress.begin(cell.name, self.arm)
        for repeat in range(self.repeats):
            self._repeat = repeat
            outcomes.append(self._session(channel))
        worst = next((outcome for outcome in outcomes if outcome != "identical"), "identical")
        right = outcomes.count("identical")
        self.progress.end(cell.name, self.arm, worst, f"{right} of {self.repeats} sessions are right")

    def _session(self, channel: Channel) -> str:
        """One session with its failure, and how it ended."""
        places = [
            {"start": server.span.start, "end": server.span.end, "peer": server.peer_id}
            for server in self.swarm.servers.values()
            if server.span is not None
        ]
        cell = {"history": self._cell.history, "n_failed": self._cell.n_failed}
        channel.send({**cell, "servers": places, "repeat": self._repeat})
        until_s, self._outcome = time.monotonic() + self.deadline_s, "lost"
        with self._healed() as faults:
            while True:
                message = channel.recv(max(0.0, until_s - time.monotonic()))
                if message["event"] == "next":
                    return self._outcome
                if message["event"] == "at":
                    daemons: list[int] = []
                    faults += [self._fault(target, daemons) for target in self._targets(message["chain"])]
                    self._all(faults, Lifecycle.setup, Lifecycle.inject)
                    channel.send({"go": True})
                elif message["event"] == "recovered":
                    self._all(faults, Lifecycle.confirm)
                    channel.send({"go": True})
                else:
                    self._record(message)

    def _targets(self, chain: Sequence[Mapping[str, Any]]) -> list[str]:
        """The servers of the last span, or of the first and the last."""
        by_peer = {server.peer_id: name for name, server in self.swarm.servers.items()}
        used = [by_peer[place["peer"]] for place in chain]
        return [used[0], used[-1]] if self._cell.n_failed > 1 else [used[-1]]

    @contextmanager
    def _healed(self) -> Iterator[list[Lifecycle]]:
        """Brings back what was killed, all at the same time, also after an error.

        :raises SwarmFailed: if it does not come back
        """
        faults: list[Lifecycle] = []
        try:
            yield faults
        finally:
            with ThreadPoolExecutor(max(len(faults), 1)) as pool:
                broken = [error for error in pool.map(_heal, faults) if error]
            if broken:
                raise SwarmFailed(f"{self._cell.name} / {self.arm}: {'; '.join(broken)}")

    @staticmethod
    def _all(faults: Sequence[Lifecycle], *stages: Callable[[Lifecycle], None]) -> None:
        """Each stage for all servers; they are cut off at the same moment.

        They are cut off, not killed: to take the memory of a dead process apart takes this machine longer than a short
        recovery, and would be a part of it. So would looking at all processes to confirm it: that is done as soon as
        the recovery is over, and nobody comes back before.
        """
        with suppress(FaultFailed):  # recorded; the judge will not call the run a pass
            for stage in stages:
                for fault in faults:
                    stage(fault)

    def _fault(self, target: str, daemons: list[int]) -> Lifecycle:
        server = self.swarm.servers[target]
        assert server.span is not None
        about = {
            "fault": Fault.CUT.value,
            "target": target,
            "peer": server.peer_id,
            "span_start": server.span.start,
            "span_end": server.span.end,
            "at_token": self._cell.history,
        }
        servers = self.swarm.servers
        fault = ProcessFault(Fault.CUT, target, self.swarm, lambda: servers[target].pgid, cut_with=daemons)
        return Lifecycle(fault, lambda row: self._write("faults", row), about)

    def _record(self, message: Message) -> None:
        kind = EVENTS.get(message.pop("event"))
        at_s = message.pop("at_s")
        message.pop("repeat", None)
        if kind == "failovers":
            message["spans"], message["peers_tried"] = message.pop("replacements"), message.pop("attempts")
        if kind == "outcomes":
            self._outcome = message["outcome"]
        if kind == "logs":
            message["source"] = "client"
        if kind is not None:
            self._write(kind, message, at_s)

    def _write(self, kind: str, row: Mapping[str, Any], at_s: float | None = None) -> None:
        happened_s = time.monotonic() if at_s is None else at_s
        about = {"scenario": self._cell.name, "repeat": self._repeat}
        self.history.write(kind, self.arm, at_s=happened_s, **about, **row)


def _heal(fault: Lifecycle) -> str | None:
    """What stays broken; None if nothing does."""
    with suppress(FaultFailed):  # recorded, and cleanup tries again
        if fault.valid and Stage.CONFIRM in fault.done:
            fault.heal()
    try:
        fault.cleanup()
    except FaultFailed as error:
        return str(error)
    return None
