"""The processes of a group, as the system sees them."""

from __future__ import annotations

import os

import psutil


def group_states(pgid: int) -> dict[int, str]:
    """State (as psutil names it) of each process of a group; zombies, which run nothing any more, left out."""
    states = {}
    for process in psutil.process_iter():
        try:
            # of processes that end meanwhile, nothing is wanted
            if (
                process.pid
                and _pgid(process.pid) == pgid
                and (state := process.status()) != psutil.STATUS_ZOMBIE
            ):
                states[process.pid] = state
        except psutil.NoSuchProcess:
            continue
    return states


def _pgid(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        raise psutil.NoSuchProcess(pid) from None
