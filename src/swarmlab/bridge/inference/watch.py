"""Waits for a reply while watching the clock: late replies are probed, dead and stuck servers given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from hivemind.proto import runtime_pb2

from swarmlab.bridge.inference.stream import SpanStream
from swarmlab.recovery.failure import Cause
from swarmlab.recovery.latency import ReplyLatency

Probe = Callable[[], Awaitable[bool]]


async def watched_exchange(
    stream: SpanStream,
    request: runtime_pb2.ExpertRequest,
    n_further: int,
    latency: ReplyLatency,
    probe: Probe,
    *,
    opening: bool = False,
) -> runtime_pb2.ExpertResponse:
    """Send ``request`` and return its reply.

    A reply that is later than ``latency`` finds plausible has its server probed, again and again while it stays
    late. No answer to a probe means HUNG; answers but no reply until the hard limit means STUCK.

    :param opening: nobody knows yet whether this server is there: that is asked first when a single step would be late,
        however many tokens it was sent
    :raises PeerFailed: if the server breaks the stream, refuses, hangs or is stuck
    """
    started_at_s = time.monotonic()
    give_up_at_s = started_at_s + latency.give_up_after_s(n_further)
    patience_s = latency.suspect_after_s(n_further)
    wait_s = latency.suspect_after_s(0) if opening else patience_s
    reply = asyncio.create_task(stream.exchange(request))
    try:
        while not await _done_within(reply, min(wait_s, give_up_at_s - time.monotonic())):
            waited_s = time.monotonic() - started_at_s
            if time.monotonic() >= give_up_at_s:
                latency.gave_up()
                raise stream.abandon(Cause.STUCK, f"no reply for {waited_s:.1f} s though it answers probes")
            alive = asyncio.ensure_future(probe())
            try:
                await asyncio.wait({reply, alive}, return_when=asyncio.FIRST_COMPLETED)
            finally:  # also when the step is cancelled
                alive.cancel()
            if not reply.done() and not alive.result():
                raise stream.abandon(Cause.HUNG, f"no reply for {waited_s:.1f} s and no answer to a probe")
            wait_s = patience_s
        answer = reply.result()
    finally:
        reply.cancel()
    latency.observe(time.monotonic() - started_at_s, n_further)
    return answer


async def _done_within(task: asyncio.Task, seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=max(seconds, 0.0))
    return bool(done)
