"""What a swarm has on the machine: processes, temporary files, shared memory; found by a mark in the environment."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from pathlib import Path

import psutil

MARK = "SWARMLAB_TEST_MARK"
GONE_S = 10.0
SHARED_MEMORY = Path("/dev/shm")


class Machine:
    """The machine before a swarm; ``left`` says what of the swarm is still on it.

    :param root: a short path for temporary files of the swarm
    """

    def __init__(self, root: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.temp_dir = root
        self._seen: dict[int, float] = {}
        self._sockets = self._stray_sockets()

    def env(self) -> dict[str, str]:
        """For the orchestrator: everything that it starts inherits the mark."""
        return {**os.environ, MARK: self.mark, "TMPDIR": str(self.temp_dir)}

    def look(self) -> dict[int, str]:
        """Processes with the mark, now: pid and command. They are remembered."""
        found = {}
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found[process.pid] = process.name()
                    self._seen[process.pid] = process.create_time()
            except psutil.Error:
                continue
        return found

    def left(self) -> list[str]:
        """What is left after at most ``GONE_S`` seconds; zombies count."""
        until = time.monotonic() + GONE_S
        while (rest := self._rest()) and time.monotonic() < until:
            time.sleep(0.05)
        return rest

    def _rest(self) -> list[str]:
        self.look()
        alive = [f"process {pid}" for pid, created in self._seen.items() if _is_there(pid, created)]
        # what goes away while it is looked at is no error to os.walk
        files = [
            f"file {Path(folder, name)}"
            for folder, folders, names in os.walk(self.temp_dir)
            for name in (*folders, *names)
        ]
        shared = [
            f"shared memory {path}"
            for path in SHARED_MEMORY.glob("torch_*")
            if int(path.name.split("_")[1]) in self._seen
        ]
        return alive + files + shared + [f"socket {path}" for path in self._stray_sockets() - self._sockets]

    @staticmethod
    def _stray_sockets() -> set[Path]:
        """Where hivemind puts sockets if nobody tells it otherwise."""
        return set(Path("/tmp").glob("hivemind-*.sock"))


def _is_there(pid: int, created: float) -> bool:
    """Whether it is still the same process, not a later one with its number."""
    try:
        return psutil.Process(pid).create_time() == created
    except psutil.NoSuchProcess:
        return False


def short_folder() -> Path:
    """A folder whose sockets have paths short enough."""
    return Path(tempfile.mkdtemp(prefix="slt-"))
