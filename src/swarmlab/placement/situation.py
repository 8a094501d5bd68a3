"""What a server sees of all others: where they are going, and who surely serves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.layout import block_sums, layout_of
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Ints, Layout
    from swarmlab.placement.memory import Memory
    from swarmlab.types import Intent, ServerRecord, Span, SwarmView

# One server cannot distort the picture: no throughput counts for more than this many times the median.
MAX_OVER_MEDIAN = 20.0
# Records are renewed at half their lifetime; one with less than this share of the longest left has missed that.
OVERDUE_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Situation:
    """Everybody but the server that looks. Arrays have one entry per block.

    :param committed_tps: throughput once all have arrived where they serve, load, or have announced to go
    :param committed: how many servers that is
    :param serving_tps: throughput of those that surely serve now: online, seen in this read, renewed in time
    :param staying: how many of those have not announced to leave the block
    :param cap_tps: the most that one server's throughput counts for
    :param ahead: servers (by place in the layout) whose announced moves count as made
    """

    committed_tps: Floats
    committed: Ints
    serving_tps: Floats
    staying: Ints
    cap_tps: float
    ahead: frozenset[int]


def situation(view: SwarmView, peer_id: str, memory: Memory | None, intent: Intent | None) -> Situation:
    """The situation of server ``peer_id``.

    :param memory: what it remembers, for servers that are missing from this read
    :param intent: what it has announced itself; rivals' intents count only if they were announced before
    """
    everybody = _everybody(view)
    committed_tps, committed = everybody.committed_tps.copy(), everybody.committed.copy()
    serving_tps, staying = everybody.serving_tps.copy(), everybody.staying.copy()
    cap = everybody.cap_tps
    layout = everybody.layout
    own = layout.index(peer_id)
    if own is not None:
        _add(committed_tps, committed, layout.records[own].span, -float(everybody.rates[own]), -1)
        if everybody.sure[own]:
            _add(serving_tps, staying, layout.records[own].span, -float(everybody.rates[own]), -1)
    ahead = frozenset(
        i for i in everybody.intending if i != own and _goes_first(layout.records[i], peer_id, intent)
    )
    for i in sorted(ahead):
        old, new = layout.records[i].span, _announced(layout.records[i]).span
        rate = float(everybody.rates[i])
        _add(committed_tps, committed, old, -rate, -1)
        _add(committed_tps, committed, new, rate, 1)
        if everybody.sure[i]:
            for left in blocks_left(old, new):
                staying[left] -= 1
    for item in memory.vanished if memory else ():
        shown = layout.index(item.record.peer_id)
        rate = min(item.record.throughput_tps, cap)
        if shown is not None:
            _add(committed_tps, committed, layout.records[shown].span, -float(everybody.rates[shown]), -1)
        _add(committed_tps, committed, item.record.span, rate, 1)
    # what subtracting leaves of a block that nobody holds is float noise
    committed_tps[committed == 0] = 0.0
    return Situation(
        np.maximum(committed_tps, 0.0), committed, np.maximum(serving_tps, 0.0), staying, cap, ahead
    )


def _add(values: Floats, counts: Ints, span: Span, rate: float, count: int) -> None:
    values[span.start : span.end] += rate
    counts[span.start : span.end] += count


def blocks_left(old: Span, new: Span) -> tuple[slice, slice]:
    """The blocks of ``old`` that are not in ``new``, as two slices, of which one or both may be empty."""
    return slice(old.start, min(old.end, new.start)), slice(max(old.start, new.end), old.end)


def _goes_first(rival: ServerRecord, peer_id: str, intent: Intent | None) -> bool:
    # Of two intents the one announced earlier goes first, so that of two rivals exactly one counts on the other.
    rivals = (_announced(rival).announced_at_s, rival.peer_id)
    return intent is None or rivals < (intent.announced_at_s, peer_id)


def _announced(record: ServerRecord) -> Intent:
    if record.intent is None:
        raise ValueError(f"{record.peer_id} has announced no move")
    return record.intent


@dataclass(frozen=True, eq=False)
class _Everybody:
    # The same sums for all servers of a view, without intents; kept with the view.
    layout: Layout
    rates: Floats
    sure: np.ndarray
    intending: tuple[int, ...]
    committed_tps: Floats
    committed: Ints
    serving_tps: Floats
    staying: Ints
    cap_tps: float


def _everybody(view: SwarmView) -> _Everybody:
    known = view.__dict__.get("_everybody")
    if known is None:
        known = _sum_up(view)
        object.__setattr__(view, "_everybody", known)
    return known


def _sum_up(view: SwarmView) -> _Everybody:
    layout = layout_of(view)
    # the lower median: of two servers the larger one is the one to distrust
    cap = MAX_OVER_MEDIAN * float(np.quantile(layout.tps, 0.5, method="lower")) if len(layout.tps) else np.inf
    rates = np.minimum(layout.tps, cap) if cap > 0 else layout.tps
    left = np.array([record.expires_at_s - view.seen_at_s for record in layout.records])
    finite = left[np.isfinite(left)]
    overdue = left < OVERDUE_SHARE * (finite.max() if len(finite) else 0.0)
    online = np.array([record.state is ServerState.ONLINE for record in layout.records], dtype=bool)
    sure = online & ~overdue
    starts, ends, n_blocks = layout.starts, layout.ends, view.n_blocks
    return _Everybody(
        layout,
        rates,
        sure,
        tuple(i for i, record in enumerate(layout.records) if record.intent is not None),
        block_sums(starts, ends, rates, n_blocks),
        _counts(starts, ends, n_blocks),
        block_sums(starts[sure], ends[sure], rates[sure], n_blocks),
        _counts(starts[sure], ends[sure], n_blocks),
        cap if cap > 0 else np.inf,
    )


def _counts(starts: Ints, ends: Ints, n_blocks: int) -> Ints:
    edges = np.zeros(n_blocks + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, ends, -1)
    return np.cumsum(edges[:-1])
