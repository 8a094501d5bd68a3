"""Which servers take over a run of blocks: the cheapest chain, by dynamic programming over block boundaries.

Petals searches the same graph with Dijkstra and forces a path to the end of each server's span; here a chain may
leave a server at any block, and the price of the replay is part of the cost, so that after a failure a fast
replacement wins over a near one when the history is long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from swarmlab.types import ServerRecord, Span, SwarmView

# What petals assumes of a server that does not announce its speed (client/routing/sequence_manager.py, 2.2.0):
# 300 single-token steps/s through a block, 18 ms of serialization per hop, 0.15 s one way to an unknown peer.
DEFAULT_INFERENCE_TPS = 300.0
HOP_OVERHEAD_S = 0.018
DEFAULT_RTT_S = 0.3
MAX_RTT_S = 10.0
NO_CACHE_PENALTY_S = 10.0
# A peer that failed and announces itself again may have done so just before it failed: better than none only.
SUSPECT_PENALTY_S = 10.0


@dataclass(frozen=True)
class Need:
    """What the chain has to do.

    :param replay_tokens: positions of history that every replacement must be fed first
    :param future_steps: single-token steps expected afterwards
    :param cache_tokens: cache positions each block must allocate (batch times max length)
    """

    replay_tokens: int
    future_steps: int
    cache_tokens: int


@dataclass(frozen=True)
class Hop:
    """One server of a chain and the blocks it runs."""

    peer_id: str
    span: Span


class NoRoute(LookupError):
    """Some blocks have no usable server.

    :param missing: blocks that no allowed server serves
    :param avoided: peers that serve some of them but are avoided at present
    """

    def __init__(self, missing: Sequence[int], avoided: Collection[str]) -> None:
        super().__init__(
            f"no usable server for blocks {list(missing)} (avoided for now: {sorted(avoided) or 'nobody'})"
        )
        self.missing, self.avoided = tuple(missing), tuple(sorted(avoided))


class _Way(NamedTuple):
    """Hops through the first blocks of a span."""

    cost_s: float
    n_hops: int
    peer_id: str  # of the last hop
    chain: tuple[Hop, ...]


def hop_cost_s(record: ServerRecord, n_blocks: int, need: Need, rtt_s: float | None) -> float:
    """Expected seconds that ``record`` adds to the rest of the session if it takes ``n_blocks`` blocks."""
    rtt = min(DEFAULT_RTT_S if rtt_s is None else rtt_s, MAX_RTT_S)
    step_tps = record.inference_tps or DEFAULT_INFERENCE_TPS
    replay_tps = max(record.throughput_tps, step_tps)
    open_s = 2 * rtt + need.replay_tokens * n_blocks / replay_tps
    step_s = rtt + HOP_OVERHEAD_S + n_blocks / step_tps
    cost = open_s + max(need.future_steps, 1) * step_s
    if record.cache_tokens_left is not None and record.cache_tokens_left < 2 * need.cache_tokens * n_blocks:
        cost += NO_CACHE_PENALTY_S
    return cost


def cheapest_chain(
    view: SwarmView,
    span: Span,
    need: Need,
    *,
    rtt_s: Mapping[str, float],
    excluded: Collection[str] = (),
    suspects: Collection[str] = (),
) -> tuple[Hop, ...]:
    """The chain of serving, not excluded servers through ``span`` with the least expected time.

    :param suspects: peers that failed before; used only where that costs less than ``SUSPECT_PENALTY_S``

    ``O(blocks^2 x servers)``; ties go to fewer hops, then to the smaller peer id, so the answer is deterministic.

    :raises NoRoute: if some block has no usable server
    """
    records = [
        record for record in view.serving() if record.peer_id not in excluded and record.span.overlap(span)
    ]
    covered = {block for record in records for block in record.span}
    missing = [block for block in span if block not in covered]
    if missing:
        holders = {r.peer_id for r in view.serving() if any(block in r.span for block in missing)}
        raise NoRoute(missing, holders)

    # ways[b]: how to be done with blocks [span.start, b), cheapest first; the second ends at another server than the
    # first, for hops that may not follow that one
    ways: dict[int, list[_Way]] = {span.start: [_Way(0.0, 0, "", ())]}
    prices = [(record, _prices_s(record, span, need, rtt_s, suspects)) for record in records]
    for end in range(span.start + 1, span.end + 1):
        found = []
        for record, price_s in prices:
            peer_id, first = record.peer_id, max(span.start, record.span.start)
            if not first < end <= record.span.end:
                continue
            options = [
                (cost_s + price_s[end - start], n_hops + 1, start, way)
                for start in range(first, end)
                for way in ways[start]
                for cost_s, n_hops, last, _ in (way,)
                if last != peer_id  # one server in two pieces is one server, at another price
            ]
            if options:
                cost_s, n_hops, start, way = min(options)
                found.append((cost_s, n_hops, peer_id, start, way))
        ways[end] = [
            _Way(cost_s, n_hops, peer_id, (*way.chain, Hop(peer_id, Span(start, end))))
            for cost_s, n_hops, peer_id, start, way in sorted(found, key=lambda one: one[:3])[:2]
        ]
    return ways[span.end][0].chain


def _prices_s(
    record: ServerRecord, span: Span, need: Need, rtt_s: Mapping[str, float], suspects: Collection[str]
) -> list[float]:
    """What ``record`` costs for each number of blocks that it could take, from 0 on."""
    penalty_s = SUSPECT_PENALTY_S if record.peer_id in suspects else 0.0
    known_s = rtt_s.get(record.peer_id)
    most = min(span.length, record.span.length)
    return [penalty_s + hop_cost_s(record, n_blocks, need, known_s) for n_blocks in range(most + 1)]
