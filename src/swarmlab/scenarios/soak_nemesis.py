"""Lets the faults of a soak happen, several at once, and undoes every one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from swarmlab.errors import SwarmFailed
from swarmlab.faults import nemesis
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle
from swarmlab.faults.nemesis import NemesisSettings, Plan, Stream
from swarmlab.faults.process import ProcessFault
from swarmlab.swarm.deploy import Swarm
from swarmlab.types import Span

READY_S = 120.0  # for a server that comes back while the machine is busy with everything else


class Nemesis:
    """Runs the schedule of ``swarmlab.faults.nemesis`` against a swarm, on threads of its own.

    :param write: takes one row of the record kind ``faults``
    :param in_use: gives the peer ids of the servers that clients use now
    """

    def __init__(
        self,
        swarm: Swarm,
        settings: NemesisSettings,
        seed: int,
        write: Callable[[dict[str, Any]], None],
        in_use: Callable[[], set[str]] = set,
    ) -> None:
        self._in_use = in_use
        self._swarm, self._settings, self._seed, self._write = swarm, settings, seed, write
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._away: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.failures = 0  # servers taken away, confirmed
        self.broken: list[str] = []  # what could not be undone

    def start(self) -> None:
        for stream in Stream:
            if self._settings.rate(stream) > 0:
                self._start_thread(self._follow, stream)

    def end(self, *, heal: bool) -> None:
        """No further faults; those that are there are undone now.

        :param heal: False if the swarm is torn down anyway
        :raises SwarmFailed: if a server did not come back
        """
        self._over.set()
        if not heal:
            return
        while self._threads:
            self._threads.pop(0).join()
        if self.broken:
            raise SwarmFailed(f"the swarm is not whole again: {'; '.join(self.broken)}")

    def _follow(self, stream: Stream) -> None:
        number, due_s = 0, time.monotonic()
        while True:
            planned = nemesis.plan(self._settings, self._seed, stream, number)
            number, due_s = number + 1, due_s + planned.gap_s
            if self._over.wait(max(0.0, due_s - time.monotonic())):
                return
            target = self._take(planned)
            if target is not None:
                self._start_thread(self._perform, planned, target)

    def _take(self, planned: Plan) -> str | None:
        with self._lock:
            peers = self._in_use()
            target = nemesis.choose(
                planned,
                self._holders,
                self._away,
                allow_outage=self._settings.allow_outage,
                in_use=[name for name, server in self._swarm.servers.items() if server.peer_id in peers],
            )
            if target is not None:
                self._away.add(target)
            return target

    @property
    def _holders(self) -> Mapping[str, Span]:
        return {name: server.span for name, server in self._swarm.servers.items() if server.span is not None}

    def _perform(self, planned: Plan, target: str) -> None:
        """One fault from its beginning to its end; the server counts as away until it serves again."""
        server = self._swarm.servers[target]
        assert server.span is not None
        about = {
            "fault": planned.fault.value,
            "target": target,
            "peer": server.peer_id,
            "span_start": server.span.start,
            "span_end": server.span.end,
            "at_token": None,
            "seconds": planned.seconds,
        }
        is_pause = planned.fault is nemesis.Fault.PAUSE
        fault = ProcessFault(
            planned.fault,
            target,
            self._swarm,
            lambda: server.pgid,
            ready_s=READY_S,
            seconds=planned.seconds if is_pause else None,
        )
        lifecycle = Lifecycle(fault, self._write, about)
        try:
            with suppress(FaultFailed):  # recorded; the judge will not call the run a pass
                lifecycle.setup()
                lifecycle.inject()
                lifecycle.confirm()
                self.failures += not is_pause
                self._over.wait(planned.seconds)
                lifecycle.heal()
            lifecycle.cleanup()
        except Exception as error:  # noqa: BLE001 - on a thread, nobody else would hear of it
            self.broken.append(f"{target} after {planned.fault.value}: {error}")
            self._over.set()
            return
        with self._lock:
            self._away.discard(target)

    def _start_thread(self, target: Callable[..., None], *args: Any) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=target, args=args, name="nemesis", daemon=True)
        thread.start()
        self._threads.append(thread)
