"""Looks at something again and again, at even intervals, while a ``with`` block lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self


class Sampler:
    """Calls ``look`` on a thread, first at once and then every ``every_s`` seconds.

    A look that takes longer than the interval is followed by the next one at once; those it missed are left out.

    :param look: raises nothing that should end the run; what it raises ends the sampling and is kept in ``failure``
    """

    def __init__(self, look: Callable[[], None], every_s: float, name: str = "sampler") -> None:
        self._look, self._every_s = look, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: str | None = None
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._over.is_set():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  on a thread, nobody else would hear of it
                self.failure = f"{type(error).__name__}: {error}"
                return
            self.looks += 1
            due_s = max(due_s + self._every_s, time.monotonic())
            self._over.wait(due_s - time.monotonic())
