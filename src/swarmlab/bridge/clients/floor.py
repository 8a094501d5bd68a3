"""What no replay could beat: one connection and one prefill of the same history, measured without failures.

Measured with petals' own unmodified server session, not with ours, so that a slow replay of ours cannot hide in a
slow floor of ours.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from petals.client.routing import RemoteSequenceManager

from swarmlab.bridge.clients.petals_span import open_span, span_at
from swarmlab.bridge.inference.wire import NO_HYPO_IDS, NO_PROMPTS
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.types import Span

logger = logging.getLogger(__name__)


def measure_floors(
    manager: RemoteSequenceManager,
    session: FaultTolerantSession,
    failovers: Sequence[Mapping[str, Any]],
    repeats: int,
) -> Iterator[dict[str, Any]]:
    """For each recovery of ``session``, ``repeats`` times the floor on the very servers that took over.

    :returns: dicts with ``repeat``, ``tokens``, ``connect_s``, ``prefill_s`` and ``spans``
    """
    for failover in failovers:
        spans = failover["replacements"]
        tokens = session.step_end(failover["step"])
        inputs = [session.history_of(span["start"], failover["step"]) for span in spans]
        if not spans or any(history is None for history in inputs):
            continue  # the span was replaced again since: its inputs are gone
        for repeat in range(repeats):
            connect_s = prefill_s = 0.0
            try:
                for span, history in zip(spans, inputs, strict=True):
                    assert history is not None
                    one = connect_and_prefill(manager, session.max_length, span, history)
                    connect_s, prefill_s = connect_s + one[0], prefill_s + one[1]
            except Exception as error:  # noqa: BLE001 - the server died since: there is no floor to measure
                logger.warning("no floor for %s: %r", spans, error)
                break
            yield {
                "repeat": repeat,
                "tokens": tokens,
                "connect_s": connect_s,
                "prefill_s": prefill_s,
                "spans": list(spans),
            }


def joint_floor(
    manager: RemoteSequenceManager,
    max_length: int,
    places: Sequence[Mapping[str, Any]],
    histories: Sequence[torch.Tensor],
) -> tuple[float, float]:
    """The same for spans that can be rebuilt at the same time: connections and prefills of all of them, side by side.

    :returns: seconds of the connections and, after them, of the prefills
    """
    started_at_s = time.monotonic()
    with ThreadPoolExecutor(len(places)) as pool:
        one = partial(connect_and_prefill, manager, max_length)
        connects_s = max(connect_s for connect_s, _ in pool.map(one, places, histories))
    return connects_s, time.monotonic() - started_at_s - connects_s


def connect_and_prefill(
    manager: RemoteSequenceManager, max_length: int, place: Mapping[str, Any], history: torch.Tensor
) -> tuple[float, float]:
    """Seconds of a connection to the server of a span, and of a prefill of its history there.

    :param place: ``start``, ``end`` and ``peer``
    """
    span = span_at(place["peer"], Span(place["start"], place["end"]))
    # asked before the clock starts, as in a session that has run for a while
    rpc_info = manager.rpc_info
    started_at_s = time.monotonic()
    server = open_span(manager, span, rpc_info, max_length)
    connected_at_s = time.monotonic()
    server.step(history, NO_PROMPTS, NO_HYPO_IDS, step_id=str(uuid.uuid4()))
    done_at_s = time.monotonic()
    server.close()
    return connected_at_s - started_at_s, done_at_s - connected_at_s
