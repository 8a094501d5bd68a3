"""A link of a given rate and delay, emulated: messages queue, and each is held back until it would have arrived."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

BITS = 8


@dataclass(frozen=True)
class Pace:
    """What a link allows.

    :param rate_bytes_per_s: None: unlimited
    :param delay_s: from the last byte sent to the last byte received
    """

    rate_bytes_per_s: float | None
    delay_s: float

    @classmethod
    def of(cls, rate_mbps: float | None, delay_s: float) -> Pace:
        """
        :param rate_mbps: 10**6 bits/s
        """
        return cls(None if rate_mbps is None else rate_mbps * 1e6 / BITS, delay_s)


def passage(pace: Pace, free_at_s: float, now_s: float, n_bytes: int) -> tuple[float, float]:
    """Send a message now: a token bucket that holds nothing, so that a burst goes at the link's rate, too.

    :param free_at_s: when the link has sent what was queued before
    :return: when it is free again, and when the message arrives
    """
    busy_s = 0.0 if pace.rate_bytes_per_s is None else n_bytes / pace.rate_bytes_per_s
    free_at_s = max(free_at_s, now_s) + busy_s
    return free_at_s, free_at_s + pace.delay_s


class Link:
    """One direction of a server's link; all processes that are forked after it was made share it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._free_at_s: Any = multiprocessing.Value("d", 0.0)

    def arrival_s(self, n_bytes: int) -> float:
        """When a message that is sent now arrives (``time.monotonic``); until it has been sent, others queue."""
        with self._free_at_s.get_lock():
            now_s = time.monotonic()
            self._free_at_s.value, arrives_at_s = passage(self._pace, self._free_at_s.value, now_s, n_bytes)
        return arrives_at_s

    async def carry(self, n_bytes: int) -> None:
        """Return when a message that is sent now has arrived."""
        await _until(self.arrival_s(n_bytes))


class Carried:
    """Messages in the order they are sent in, each when it arrives; one under way does not keep the next waiting.

    Must be made, read to its end or closed in one event loop.

    :param messages: protobufs
    """

    def __init__(self, link: Link, messages: AsyncIterator[Any]) -> None:
        self._link, self._messages = link, messages
        self._under_way: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        arrives_at_s, message = await self._under_way.get()
        if message is None:
            self._under_way.put_nowait((0.0, None))  # for whoever asks once more
            await self._sender  # raises what the source raised, if it did
            raise StopAsyncIteration
        await _until(arrives_at_s)
        return message

    async def aclose(self) -> None:
        """Stop reading the source, and close it."""
        self._sender.cancel()
        await asyncio.wait([self._sender])

    async def _send(self) -> None:
        try:
            async for message in self._messages:
                self._under_way.put_nowait((self._link.arrival_s(message.ByteSize()), message))
        finally:
            if isinstance(self._messages, AsyncGenerator):
                await self._messages.aclose()
            self._under_way.put_nowait((0.0, None))


async def _until(at_s: float) -> None:
    while (left_s := at_s - time.monotonic()) > 0:  # a loop's own clock may be coarser
        await asyncio.sleep(left_s)
