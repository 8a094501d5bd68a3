"""Kills several processes at the same moment, also on a machine whose cores are busy."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DYING, KILLING = 1, 2  # real-time priorities; everything else has none
GONE = (ProcessLookupError, FileNotFoundError)


def kill_at_once(pids: Sequence[int]) -> None:
    """SIGKILL to all of them. Where we may, they die before anything else runs that their deaths wake up.

    A process that is killed must still be given a core to end and to close its connections. With what the first
    one's end sets going on two cores, the second one's came 10 to 25 ms later. Real-time scheduling wants privileges
    (root, or CAP_SYS_NICE); without them the deaths may be so far apart.
    """
    with _first():
        for pid in pids:
            for thread in _threads(pid):
                with suppress(PermissionError, *GONE):
                    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(DYING))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def _first() -> Iterator[None]:
    """Let this thread run before those that die, so that none of them ends between two signals."""
    policy, before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(KILLING))
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, policy, before)


def _threads(pid: int) -> list[int]:
    with suppress(*GONE):
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    return []
