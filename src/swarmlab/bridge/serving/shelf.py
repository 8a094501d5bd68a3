"""The blocks of a server, which outlive the container that serves them."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from hivemind.utils import get_logger

from swarmlab.bridge.container import START_S, BlockContainer

if TYPE_CHECKING:
    import torch

logger = get_logger(__name__)

CALM_S = 60.0  # a container that lives that long has been no trouble
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
MAX_DOUBLINGS = 32
MAX_TRIES = 6  # containers that do not come up, one after another


class Shelf:
    """What the rest of the server sees of its blocks. Safe from any thread.

    :param make: makes a container without blocks
    :param start_s: how long a container may take to come up
    """

    def __init__(
        self,
        make: Callable[[], BlockContainer],
        start_s: float = START_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._start_s, self._clock = make, start_s, clock
        self._lock = threading.Lock()
        self._failed_tries = self._setbacks = 0
        self._replaced_at_s: float | None = None
        self.container = make()

    @property
    def blocks(self) -> frozenset[int]:
        with self._lock:
            return self.container.blocks

    def modules(self) -> dict[int, torch.nn.Module]:
        with self._lock:
            return self.container.modules()

    def add(self, modules: Mapping[int, torch.nn.Module]) -> None:
        """See :meth:`BlockContainer.add`."""
        with self._lock:
            self.container.add(modules)

    def remove(self, blocks: Iterable[int]) -> None:
        """See :meth:`BlockContainer.remove`."""
        with self._lock:
            self.container.remove(blocks)

    def sessions_on(self, blocks: Iterable[int]) -> int:
        """See :meth:`BlockContainer.sessions_on`."""
        return self.container.sessions_on(blocks)

    def start(self) -> None:
        """:raises Exception: if the container does not come up in time"""
        self.container.start_within(self._start_s)

    @property
    def is_healthy(self) -> bool:
        return self.container.is_healthy()

    @property
    def is_proven(self) -> bool:
        """Whether it is alive and, if one before it died soon, has outlived the pause before its own start."""
        return self.is_healthy and (self._setbacks <= 1 or self._clock() >= self._next_try_s())

    def heal(self) -> bool:
        """A new container round the same blocks, for one of which a process has died.

        One that dies soon again gets its successor after a pause, each longer than the one before: a machine without
        memory kills whatever is started.

        :returns: True if it serves; False if it has to be tried again
        :raises RuntimeError: if none has come up for too often: the server has to end
        """
        if self._clock() < self._next_try_s():
            return False
        self._replace()
        self._replaced_at_s = self._clock()
        self._setbacks += 1
        try:
            self.start()
        except Exception as error:
            self._failed_tries += 1
            self.container.stop()
            if self._failed_tries >= MAX_TRIES:
                raise RuntimeError(
                    f"handlers did not come up {MAX_TRIES} times, the last: {error}"
                ) from error
            logger.warning(f"New handlers did not come up, they are tried again: {error}")
            return False
        self._failed_tries = 0
        return True

    def shutdown(self) -> None:
        """In bounded time, and without a lock: whoever holds it may wait for something."""
        self.container.stop()

    def _next_try_s(self) -> float:
        if self._replaced_at_s is None:
            return -math.inf
        if self._clock() - self._replaced_at_s > CALM_S:
            self._setbacks = 0
            return -math.inf
        doublings = min(self._setbacks - 1, MAX_DOUBLINGS)
        return self._replaced_at_s + min(FIRST_PAUSE_S * 2**doublings, MAX_PAUSE_S)

    def _replace(self) -> None:
        with self._lock:
            old, fresh = self.container, self._make()
            old.stop()
            fresh.add(old.modules())
            old.forget()
            self.container = fresh
        del old, fresh
        gc.collect()  # closes the file descriptors of the old one
