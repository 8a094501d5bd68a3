"""An event loop whose clock jumps to the next timer, so that minutes of waiting cost nothing."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")


class WaitsForEver(RuntimeError):
    """The program waits for something that can never happen, or turns in circles."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: the loop's clock is moved on instead."""

    def __init__(self, most_turns: int) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.turns_left = most_turns

    def select(self, timeout: float | None = None) -> list:
        self.turns_left -= 1
        if self.turns_left < 0:
            raise WaitsForEver("too many turns of the event loop")
        events = super().select(0)
        if not events and timeout is None:
            raise WaitsForEver("nothing is due and nobody can wake the loop")
        if not events and timeout:
            self.now_s += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time; one that could only wait for ever raises :class:`WaitsForEver`."""

    def __init__(self, most_turns: int = 50_000) -> None:
        self.virtual = _Selector(most_turns)
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()


LOOP_CLOCK = SimpleNamespace(monotonic=_now_s)  # in place of the module ``time``


@contextlib.contextmanager
def clock_of_the_loop(*modules: ModuleType) -> Iterator[None]:
    """``time.monotonic`` in ``modules`` is the running loop's clock."""
    with contextlib.ExitStack() as patches:
        for module in modules:
            patches.enter_context(mock.patch.object(module, "time", LOOP_CLOCK))
        yield


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run`` in virtual time; what is still to be done at the end is cancelled."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)
    try:
        return loop.run_until_complete(main)
    finally:
        _cancel_all(loop)
        loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    loop.virtual.turns_left = 10_000

    async def cancel() -> None:
        # in rounds: the last words of one task may start another
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    with contextlib.suppress(WaitsForEver):
        loop.run_until_complete(cancel())
