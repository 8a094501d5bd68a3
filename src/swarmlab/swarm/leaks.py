"""What a swarm has on this machine: processes, sockets and files, to be compared between two moments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

# Where hivemind puts its sockets, and torch its shared memory, if nobody tells them otherwise.
STRAY_SOCKETS = "hivemind-*.sock"


@dataclass(frozen=True)
class Inventory:
    """Numbers of each.

    :param processes: that live in the swarm's folder for temporary files
    :param sockets: unix sockets in that folder, and any that hivemind left outside it
    :param files: other files in that folder
    """

    processes: int
    sockets: int
    files: int

    def exceeds(self, other: Inventory) -> bool:
        """Whether there is more of anything."""
        return self.processes > other.processes or self.sockets > other.sockets or self.files > other.files


def take_inventory(temp_dir: Path, known_strays: frozenset[Path] = frozenset()) -> Inventory:
    """Count what a swarm has now.

    :param temp_dir: of the swarm; every process of it carries its name in ``TMPDIR``
    :param known_strays: stray sockets that were there before the swarm
    """
    paths = list(temp_dir.rglob("*")) if temp_dir.exists() else []
    sockets = [path for path in paths if path.is_socket()]
    files = [path for path in paths if path.is_file()]
    strays = stray_sockets() - known_strays
    return Inventory(_count_processes(temp_dir), len(sockets) + len(strays), len(files))


def stray_sockets() -> frozenset[Path]:
    """Sockets of hivemind that lie outside the folder of any swarm."""
    return frozenset(Path("/tmp").glob(STRAY_SOCKETS))


def _count_processes(temp_dir: Path) -> int:
    count = 0
    for process in psutil.process_iter():
        try:
            # the environment as it was when the nursery started; forked children keep it
            count += process.pid != os.getpid() and process.environ().get("TMPDIR") == str(temp_dir)
        except psutil.Error:
            continue
    return count
