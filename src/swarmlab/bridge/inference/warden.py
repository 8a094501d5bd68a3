"""Outlives the nursery by a moment: whatever ends the nursery, its process groups and temporary files go too.

The nursery and, for an instant, each of its children hold one end of a pipe. Children write ``+pgid`` as their
first act, the nursery writes ``-pgid`` when a group is gone. The end of the pipe means that the nursery is dead,
however it died (SIGKILL included); the groups still listed are then killed, stopped ones too, which no thread
inside them could do.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LEAVE_S = 5.0


def start(temp_dir: Path) -> tuple[int, int]:
    """Fork the warden; to be called early, while the process is small.

    :param temp_dir: removed with all it holds when the nursery is gone
    :return: the warden's pid and the file descriptor to write group numbers to
    """
    read_end, write_end = os.pipe()
    if pid := os.fork():
        os.close(read_end)
        return pid, write_end
    try:
        os.setsid()
        # Slurm signals each process of a job; the pipe says when to end
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(write_end)
        for fd in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        os.closerange(3, read_end)
        os.closerange(read_end + 1, 256)
        _sweep(_follow(read_end), temp_dir)
    finally:
        os._exit(0)


def _follow(read_end: int) -> set[int]:
    """Read group numbers until every writer is gone; return the groups that were never reported gone."""
    groups: set[int] = set()
    pending = b""
    while data := os.read(read_end, 1 << 12):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    return groups


def _sweep(groups: set[int], temp_dir: Path) -> None:
    until = time.monotonic() + LEAVE_S
    while groups and time.monotonic() < until:
        groups = {group for group in groups if _kill(group)}
        time.sleep(0.02)
    shutil.rmtree(temp_dir, ignore_errors=True)


def _kill(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
