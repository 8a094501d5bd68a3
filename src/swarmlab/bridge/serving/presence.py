"""A small table in shared memory: which blocks a server holds, and how many sessions use each. No petals here."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from typing import Any


class Presence:
    """Which blocks are held, written by the server; how many sessions use each, written by its handlers."""

    def __init__(self, n_blocks: int) -> None:
        self._held = multiprocessing.RawArray("b", n_blocks)
        self._arrivals = multiprocessing.RawArray("L", n_blocks)
        self._sessions = multiprocessing.Array("i", n_blocks)

    def set_held(self, block: int, *, held: bool) -> None:
        self._arrivals[block] += held
        self._held[block] = held

    def arrivals(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """How often each of the blocks has come: another number means that it was away in between."""
        return tuple(self._arrivals[block] for block in blocks)

    def is_held(self, block: int) -> bool:
        return 0 <= block < len(self._held) and bool(self._held[block])

    def count_session(self, blocks: Iterable[int], by: int) -> None:
        """One session more or less on each of the blocks."""
        with self._sessions.get_lock():
            for block in blocks:
                self._sessions[block] += by

    def sessions_on(self, blocks: Iterable[int]) -> int:
        """The largest number of sessions on one of the blocks; never waits for a handler that died with the lock."""
        counts: Any = self._sessions.get_obj()
        return max((counts[block] for block in blocks), default=0)
