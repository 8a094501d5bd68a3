"""A recovery without its failure: what our own code takes to do the same work in peace.

Between the floor (petals' code, in peace) and a recovery (our code, right after a death) it tells what is owed to our
code and what to the death: connections that end everywhere, and whoever else reacts to that on the same machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker

from swarmlab.bridge.inference.chain import Link
from swarmlab.bridge.inference.flow import Flow
from swarmlab.bridge.inference.rebuild import close_streams
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.recovery.latency import ReplyLatency
from swarmlab.recovery.routing import Hop
from swarmlab.types import Span


def calm_rebuild(
    session: FaultTolerantSession, places: Sequence[Mapping[str, Any]], step: int
) -> float | None:
    """Seconds to open streams to all places and to replay to each the history of its span, at the same time.

    The session itself is not changed by it.

    :param places: ``start``, ``end`` and ``peer``; spans of the session as it is now
    :param step: index of the last step that is replayed
    :returns: None if some of them are no spans of the session any more
    """
    seconds: Any = RemoteExpertWorker.run_coroutine(_rebuild_all(session._flow, places, step + 1))
    return seconds


async def _rebuild_all(flow: Flow, places: Sequence[Mapping[str, Any]], n_steps: int) -> float | None:
    links = {(link.span.start, link.span.end): link for link in flow._links}
    held = [links.get((place["start"], place["end"])) for place in places]
    begun: list[Link] = []
    started_at_s = time.monotonic()
    try:
        work = [
            _rebuild(flow, Hop(place["peer"], Span(place["start"], place["end"])), link, n_steps, begun)
            for place, link in zip(places, held, strict=True)
            if link is not None
        ]
        await asyncio.gather(*work)
        return time.monotonic() - started_at_s if len(work) == len(places) else None
    finally:
        close_streams(flow.session, begun)


async def _rebuild(flow: Flow, hop: Hop, like: Link, n_steps: int, begun: list[Link]) -> None:
    stream = await flow.session.open(hop, None)
    link = Link(hop.span, like.history, ReplyLatency(flow.session.settings), stream)
    begun.append(link)
    await flow.session.replay(link, n_steps)
