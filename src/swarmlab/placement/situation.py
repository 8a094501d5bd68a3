"""What a server sees of all others: where they are going, and who surely serves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from swarmlab.placement.layout import block_sums, layout_of
from swarmlab.placement.rule import loops
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Ints, Layout
    from swarmlab.placement.memory import Gone, Memory
    from swarmlab.types import Intent, ServerRecord, Span, SwarmView

Flags: TypeAlias = "NDArray[np.bool_]"

# One server cannot distort the picture: no throughput counts for more than this many times the median.
MAX_OVER_MEDIAN = 20.0
# Records are renewed at half their lifetime; one with less than this share of the longest left has missed that.
OVERDUE_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Situation:
    """Everybody but the server that looks. Arrays have one entry per block.

    :param committed_tps: throughput once all have arrived where they serve, load, or have announced to go
    :param committed: how many servers that is, and ``gathered`` if rivals' moves announced later count as well
    :param serving_tps: throughput of those that surely serve now: online, seen in this read, renewed in time
    :param staying: how many of those have not announced to leave the block
    :param cap_tps: the most that one server's throughput counts for
    :param rates_tps: what each server of the layout adds to a block
    :param movable: which of them serve and would make their part of a plan
    :param ahead: servers (by place in the layout) whose announced moves count as made
    :param grain_tps: throughput of one server, each weighted by what it serves: the grain in which throughput comes
        and goes; 0 where nobody serves
    """

    committed_tps: Floats
    committed: Ints
    gathered: Ints
    serving_tps: Floats
    staying: Ints
    cap_tps: float
    rates_tps: Floats
    movable: Flags
    ahead: frozenset[int]
    grain_tps: float


def situation(view: SwarmView, peer_id: str, memory: Memory | None, intent: Intent | None) -> Situation:
    """The situation of server ``peer_id``.

    :param memory: what it remembers, for servers that are missing from this read and those that are shown but gone
    :param intent: what it has announced itself; rivals' intents count only if they were announced before
    """
    everybody = _everybody(view)
    layout, cap = everybody.layout, everybody.cap_tps
    own = layout.index(peer_id)
    gone = _places(layout, memory.gone) if memory and memory.gone else frozenset()
    if intent is None and own not in everybody.intending and gone.isdisjoint(everybody.intending):
        sums, ahead = everybody.after_intents, everybody.intending
    else:
        ahead = frozenset(
            i
            for i in everybody.intending
            if i != own and i not in gone and _goes_first(layout.records[i], peer_id, intent)
        )
        sums = _moved(everybody, everybody.present, ahead)
    movable = everybody.movable
    if gone:
        movable = movable.copy()
        movable[list(gone)] = False
    for i in sorted(gone):
        sums = sums.without(layout.records[i].span, float(everybody.rates[i]), int(everybody.sure[i]))
    missing = memory.vanished if memory else ()
    for item in missing:
        shown = layout.index(item.record.peer_id)
        if shown is not None:  # with a part of its span, in place of which the whole counts
            sums = sums.without(layout.records[shown].span, float(everybody.rates[shown]), 0)
    start, end, rate, sure = 0, 0, 0.0, False
    if own is not None:
        start, end = layout.starts[own], layout.ends[own]
        rate, sure = everybody.rates[own], everybody.sure[own]
    committed_tps, committed, serving_tps, staying = loops().others(
        sums.committed_tps,
        sums.committed,
        sums.serving_tps,
        sums.staying,
        start,
        end,
        rate,
        sure,
        np.array([item.record.span.start for item in missing], dtype=np.int64),
        np.array([item.record.span.end for item in missing], dtype=np.int64),
        np.array([min(item.record.throughput_tps, cap) for item in missing], dtype=np.float64),
    )
    gathered = committed
    later = everybody.intending - ahead - gone - {own}
    if later:
        gathered = committed.copy()
        for i in later:
            old, new = layout.records[i].span, _announced(layout.records[i]).span
            gathered[old.start : old.end] -= 1
            gathered[new.start : new.end] += 1
    return Situation(
        committed_tps,
        committed,
        gathered,
        serving_tps,
        staying,
        cap,
        everybody.rates,
        movable,
        ahead,
        everybody.grain_tps,
    )


def _places(layout: Layout, gone: tuple[Gone, ...]) -> frozenset[int]:
    found = (layout.index(item.peer_id) for item in gone)
    return frozenset(i for i in found if i is not None)


def overdue(view: SwarmView) -> tuple[ServerRecord, ...]:
    """Servers that say they serve, and have not renewed that when they should have; those with most to lose first."""
    return _everybody(view).overdue


def surely_served(view: SwarmView, memory: Memory | None) -> Ints:
    """How many servers surely serve each block: online, renewed in time, and not known to be gone."""
    everybody = _everybody(view)
    served = everybody.present.staying.copy()
    for i in _places(everybody.layout, memory.gone) if memory else ():
        if everybody.sure[i]:
            served[everybody.layout.starts[i] : everybody.layout.ends[i]] -= 1
    return served


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
class _Sums:
    # Over all servers of a view; see Situation.
    committed_tps: Floats
    committed: Ints
    serving_tps: Floats
    staying: Ints

    def without(self, span: Span, rate: float, serving: int) -> _Sums:
        # less one server, and if `serving` is 1 also less what it surely serves
        committed_tps, committed = self.committed_tps.copy(), self.committed.copy()
        _add(committed_tps, committed, span, -rate, -1)
        if not serving:
            return _Sums(committed_tps, committed, self.serving_tps, self.staying)
        serving_tps, staying = self.serving_tps.copy(), self.staying.copy()
        _add(serving_tps, staying, span, -rate, -1)
        return _Sums(committed_tps, committed, serving_tps, staying)


@dataclass(frozen=True, eq=False)
class _Everybody:
    # What all who look at one view share; kept with it.
    layout: Layout
    rates: Floats
    movable: Flags
    sure: Flags
    late: Flags
    intending: frozenset[int]
    cap_tps: float
    present: _Sums

    @cached_property
    def overdue(self) -> tuple[ServerRecord, ...]:
        """See :func:`overdue`."""
        late = [self.layout.records[i] for i in np.flatnonzero(self.late)]
        return tuple(sorted(late, key=lambda record: -record.throughput_tps * record.span.length))

    @cached_property
    def grain_tps(self) -> float:
        """See :class:`Situation`."""
        total = float(self.rates.sum())
        return float((self.rates**2).sum()) / total if total > 0 else 0.0

    @cached_property
    def after_intents(self) -> _Sums:
        """With all announced moves made: what those see who have announced none."""
        return _moved(self, self.present, self.intending)


def _moved(everybody: _Everybody, sums: _Sums, ahead: frozenset[int]) -> _Sums:
    # The sums once the servers `ahead` have gone where they announced to go.
    if not ahead:
        return sums
    committed_tps, committed, staying = sums.committed_tps.copy(), sums.committed.copy(), sums.staying.copy()
    for i in sorted(ahead):
        record, rate = everybody.layout.records[i], float(everybody.rates[i])
        old, new = record.span, _announced(record).span
        _add(committed_tps, committed, old, -rate, -1)
        _add(committed_tps, committed, new, rate, 1)
        if everybody.sure[i]:
            for left in blocks_left(old, new):
                staying[left] -= 1
    return _Sums(committed_tps, committed, sums.serving_tps, staying)


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
    left = np.array([record.expires_at_s for record in layout.records]) - view.seen_at_s
    finite = left[np.isfinite(left)]
    late = left < OVERDUE_SHARE * (finite.max() if len(finite) else 0.0)
    online = np.array([record.state is ServerState.ONLINE for record in layout.records], dtype=bool)
    movable = online & np.array([record.movable for record in layout.records], dtype=bool)
    sure = online & ~late
    starts, ends, n_blocks = layout.starts, layout.ends, view.n_blocks
    sums = _Sums(
        block_sums(starts, ends, rates, n_blocks),
        _counts(starts, ends, n_blocks),
        block_sums(starts[sure], ends[sure], rates[sure], n_blocks),
        _counts(starts[sure], ends[sure], n_blocks),
    )
    intending = frozenset(i for i, record in enumerate(layout.records) if record.intent is not None)
    return _Everybody(
        layout, rates, movable, sure, online & late, intending, cap if cap > 0 else np.inf, sums
    )


def _counts(starts: Ints, ends: Ints, n_blocks: int) -> Ints:
    edges = np.zeros(n_blocks + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, ends, -1)
    return np.cumsum(edges[:-1])
