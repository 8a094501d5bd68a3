"""What a swarm has on this machine: processes, sockets and files, to be compared between two moments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

# Where hivemind puts its sockets if nobody tells it otherwise.
SHARED_FOLDER = Path(os.sep, "tmp")


@dataclass(frozen=True)
class Inventory:
    """Numbers of each.

    :param processes: whose ``TMPDIR`` is the swarm's folder for temporary files, or lies in it
    :param sockets: unix sockets in that folder, and any that those processes bound in the folder that all share
    :param files: other files in that folder
    """

    processes: int
    sockets: int
    files: int

    def exceeds(self, other: Inventory) -> bool:
        """Whether there is more of anything."""
        return self.processes > other.processes or self.sockets > other.sockets or self.files > other.files


class Stocktaker:
    """Counts what one swarm has; what others have on the same machine does not count.

    :param temp_dir: of the swarm; its name is in the environment of each process of it
    :param shared: a folder in which other programs put sockets, too
    """

    def __init__(self, temp_dir: Path, shared: Path = SHARED_FOLDER) -> None:
        self._temp_dir, self._shared = temp_dir, shared
        # A socket outlives the process that bound it: whose it was is known only while that lives.
        self._strays: set[Path] = set()

    def take(self) -> Inventory:
        processes = list(self._processes())
        for process in processes:
            self._strays.update(path for path in _bound(process) if path.parent == self._shared)
        # servers that end take their folders along: what is gone while it is looked at is no error to os.walk
        paths = [Path(folder, name) for folder, _, names in os.walk(self._temp_dir) for name in names]
        sockets = [path for path in (*paths, *self._strays) if path.is_socket()]
        return Inventory(len(processes), len(sockets), sum(path.is_file() for path in paths))

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                # as it was when the process began: forked children keep that of the nursery
                mark = process.environ().get("TMPDIR")
            except psutil.Error:
                continue
            if mark and process.pid != os.getpid() and Path(mark).is_relative_to(self._temp_dir):
                yield process


def _bound(process: psutil.Process) -> set[Path]:
    try:
        return {Path(str(socket.laddr)) for socket in process.net_connections(kind="unix") if socket.laddr}
    except psutil.Error:
        return set()
