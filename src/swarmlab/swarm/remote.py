"""A nursery on another machine, as the orchestrator uses it: the same as one here, but for channels."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.child import Child
from swarmlab.swarm.machine import boot_id
from swarmlab.swarm.node import shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NEWS_S = 0.5
STOP_S = 20.0  # for all processes there to end
LEAVE_S = 15.0
MARGIN_S = 10.0  # of an answer over what was asked for
CLOCK_TRIES = 9


class NodeLost(Exception):
    """The machine, or our process on it, is gone."""


class NoAnswer(NodeLost):
    """It did not answer in time; perhaps it still lives."""


class RemoteNursery:
    """Stands for the ``NodeAgent`` on the other end of ``call``.

    :param name: of the machine, in messages
    :param call: calls a method of the agent by its name, with ``limit_s`` for the answer; raises NodeLost if the
        machine is gone, NoAnswer at the limit, and whatever the method raises
    :param run_dir: where its logs and events are gathered
    :param on_exit: called from a thread with each child whose group is gone
    :param deadline_s: for the agent to come up
    """

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        run_dir: Path,
        on_exit: Callable[[Child], None],
        deadline_s: float = 120.0,
    ) -> None:
        self.name, self._call, self._run_dir, self._on_exit = name, call, run_dir, on_exit
        facts = self._ask("facts", limit_s=deadline_s)
        self.address, self.gpus = str(facts["address"]), tuple(facts["gpus"])
        self.hostname, self.temp_dir = str(facts["hostname"]), Path(facts["temp_dir"])
        self.is_here = facts["boot_id"] == boot_id()
        self._offset_s = 0.0 if self.is_here else self._clock_offset()
        self._children: dict[int, Child] = {}
        self._early_exits: dict[int, int | None] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._follower = threading.Thread(target=self._follow, name=f"node {name}", daemon=True)
        self._follower.start()

    def wait_ready(self, deadline_s: float) -> float:
        return self._ask("wait_ready", deadline_s, limit_s=deadline_s + MARGIN_S)

    def spawn(
        self,
        kind: str,
        name: str,
        args: Mapping[str, Any],
        log_path: Path,
        *,
        channel: bool,
        env: Mapping[str, str | None],
        fresh: bool = False,
    ) -> Child:
        """As ``local.Nursery.spawn``.

        :raises SwarmFailed: if it cannot be started, or should have a channel: those do not leave a machine
        """
        if channel:
            raise SwarmFailed(f"{name} must run where the command was given: it has a channel")
        pid = self._ask("spawn", kind, name, dict(args), str(log_path), env=dict(env), fresh=fresh)
        child = Child(name, pid, log_path)
        with self._lock:
            self._children[pid] = child
            died = pid in self._early_exits
        if died:
            self._bury(pid, self._early_exits.pop(pid))
        return child

    def identity(self, path: Path) -> str:
        return self._ask("identity", str(path))

    def signal(self, name: str, number: int, *, leader_only: bool = False) -> bool:
        return self._ask("signal", name, int(number), leader_only)

    def free_ports(self, count: int, taken: set[int]) -> list[int]:
        return self._ask("free_ports", count, sorted(taken))

    def group_states(self, pgid: int) -> dict[int, str]:
        """Nothing runs on a machine that is gone."""
        try:
            return self._call("group_states", pgid)
        except NodeLost:
            return {}

    def stop(self) -> None:
        """End every process there, and take the last of what they wrote."""
        try:
            self._call("stop", limit_s=STOP_S)
            self._stopped.set()
            self._follower.join(LEAVE_S)
            self._call("leave")
        except NodeLost:
            self._stopped.set()  # and nothing is left there: what runs a nursery takes it along

    def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            return self._call(method, *args, **options)
        except NodeLost as error:
            raise SwarmFailed(f"machine {self.name} is gone: {error}") from None

    def _clock_offset(self) -> float:
        """Seconds to add to that machine's monotonic clock; half the shortest round trip is the error's bound."""
        tries = []
        for _ in range(CLOCK_TRIES):
            before_s = time.monotonic()
            there_s = self._ask("clock")
            after_s = time.monotonic()
            tries.append((after_s - before_s, (before_s + after_s) / 2 - there_s))
        return min(tries)[1]

    def _follow(self) -> None:
        """Until the machine is stopped and has nothing more to say, or is gone."""
        try:
            while True:
                is_last_look = self._stopped.is_set()
                if not self._look() and is_last_look:
                    break
        except NodeLost:
            pass
        for pid in list(self._children):
            self._bury(pid, -9)

    def _look(self) -> bool:
        """Whether there was any news; a machine that is slow to answer has none."""
        try:
            news = self._call("news", NEWS_S)
        except NoAnswer:
            return False
        for name, data in news["files"].items():
            self._append(name, data)
        for pid, status in news["exits"]:
            self._bury(pid, status)
        return bool(news["files"] or news["exits"])

    def _append(self, name: str, data: bytes) -> None:
        path = self._run_dir / name
        if not path.resolve().is_relative_to(self._run_dir.resolve()):
            return  # a machine of ours would not say that
        if path.suffix == ".jsonl" and self._offset_s:
            data = b"".join(self._on_our_clock(line) for line in data.splitlines())
        with suppress(OSError):  # a full disk here must not hide that a server there died
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)

    def _on_our_clock(self, line: bytes) -> bytes:
        """A row of which a part is missing, because its writer was killed, is kept as it is."""
        try:
            return shifted(line, self._offset_s)
        except SwarmFailed:
            return line + b"\n"

    def _bury(self, pid: int, status: int | None) -> None:
        with self._lock:
            child = self._children.pop(pid, None)
            if child is None:
                self._early_exits[pid] = status
                return
        child.status = status
        child.gone.set()
        self._on_exit(child)
