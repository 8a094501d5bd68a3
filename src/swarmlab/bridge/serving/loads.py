"""Loads blocks in threads of their own, each with a deadline: petals asks a hub for ever, and a disk may hang.

A thread cannot be ended from outside. One that takes too long is left behind, and whoever wants its block again waits
for it instead of starting another.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmlab.bridge.blocks.loader import BlockLoader, LoadedBlock

POLL_S = 0.05


class Stopped(Exception):
    """The server is to end."""


class Loads:
    """The loads of one server. Safe from any thread.

    :param loader: what loads, in whichever thread it is called
    :param stopping: set when the server is to end
    """

    def __init__(self, loader: BlockLoader, stopping: threading.Event) -> None:
        self._loader, self._stopping = loader, stopping
        self._under_way: dict[int, Future[LoadedBlock]] = {}
        self._lock = threading.Lock()

    def load(self, block: int, deadline_s: float) -> LoadedBlock:
        """
        :raises TimeoutError: at the deadline
        :raises Stopped: if the server is to end
        :raises Exception: whatever the loader raises
        """
        future = self._begun(block)
        until_s = time.monotonic() + deadline_s
        while not wait([future], POLL_S).done:
            if self._stopping.is_set():
                raise Stopped(f"block {block} is not waited for: the server is to end")
            if time.monotonic() > until_s:
                raise TimeoutError(f"block {block} was not loaded within {deadline_s:.0f} s")
        try:
            return future.result()
        finally:
            del future  # else an error and its frames would lead to each other, and keep what was loaded half

    def _begun(self, block: int) -> Future[LoadedBlock]:
        with self._lock:
            future = self._under_way.get(block)
            if future is None:
                future = Future()
                name, args = f"load block {block}", (block, future)
                threading.Thread(target=self._work, args=args, name=name, daemon=True).start()
                self._under_way[block] = future
        return future

    def _work(self, block: int, future: Future[LoadedBlock]) -> None:
        try:
            loaded = self._loader.load(block)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._ended(block)
            future.set_exception(error)
        else:
            self._ended(block)
            future.set_result(loaded)
        finally:
            del future  # as above

    def _ended(self, block: int) -> None:
        # if nobody waits any more, nothing keeps the block in memory
        with self._lock:
            del self._under_way[block]
