"""Loads with a deadline: none is waited for for ever, and none is begun twice."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from swarmlab.bridge.serving.loads import Loads, Stopped


class Disk:
    """Hangs on the blocks in ``stuck`` until they are let go."""

    def __init__(self, stuck=()):
        self.stuck = {block: threading.Event() for block in stuck}
        self.begun: list[int] = []
        self.error: Exception | None = None

    def load(self, block) -> Any:
        self.begun.append(block)
        if block in self.stuck:
            self.stuck[block].wait()
        if self.error:
            raise self.error
        return f"block {block}"


def test_it_hands_on_what_the_loader_says_and_what_it_raises():
    disk = Disk()
    loads = Loads(disk, threading.Event())
    assert loads.load(3, 5.0) == "block 3"
    disk.error = MemoryError("no room")
    with pytest.raises(MemoryError, match="no room"):
        loads.load(3, 5.0)


def test_a_load_that_takes_too_long_is_left_behind_and_waited_for_by_the_next_try():
    disk = Disk(stuck=[3])
    loads = Loads(disk, threading.Event())
    for _ in range(3):
        with pytest.raises(TimeoutError, match="block 3 was not loaded within 0 s"):
            loads.load(3, 0.05)
    assert loads.load(4, 5.0) == "block 4", "a stuck file keeps nobody from others"
    assert disk.begun == [3, 4]
    disk.stuck[3].set()
    assert loads.load(3, 5.0) == "block 3"


def test_a_server_that_is_to_end_waits_for_no_load_and_says_so():
    disk, stopping = Disk(stuck=[3]), threading.Event()
    stopping.set()
    with pytest.raises(Stopped, match="to end"):
        Loads(disk, stopping).load(3, 60.0)
    disk.stuck[3].set()


def test_nothing_keeps_a_block_that_was_loaded_half():
    """On a GPU a move that ran out of memory must not keep any of it."""

    class Half:
        pass

    kept = []

    class Loader:
        def load(self, block) -> Any:
            del block
            half = Half()
            kept.append(weakref.ref(half))
            raise MemoryError

    gc.disable()
    try:
        with pytest.raises(MemoryError):
            Loads(Loader(), threading.Event()).load(3, 5.0)
        assert kept[0]() is None
    finally:
        gc.enable()
