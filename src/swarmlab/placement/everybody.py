"""What all who look at one view share: its servers summed up, once for however many look, and kept with the view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from swarmlab.placement.layout import block_sums, layout_of
from swarmlab.placement.rule import loops
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Ints, Layout
    from swarmlab.types import ServerRecord, Span, SwarmView

Flags: TypeAlias = "NDArray[np.bool_]"

# One server cannot distort the picture: no throughput counts for more than this many times the median.
MAX_OVER_MEDIAN = 20.0
# Records are renewed at half their lifetime; one with less than this share of the longest left has missed that.
OVERDUE_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Sums:
    """Of each block, over all servers of a view; see :class:`~swarmlab.placement.situation.Situation`."""

    committed_tps: Floats
    committed: Ints
    serving_tps: Floats
    staying: Ints

    def without(self, span: Span, rate: float, serving: int) -> Sums:
        """Less one server, and if ``serving`` is 1 also less what it surely serves."""
        held = slice(span.start, span.end)
        committed_tps, committed = self.committed_tps.copy(), self.committed.copy()
        committed_tps[held] -= rate
        committed[held] -= 1
        if not serving:
            return Sums(committed_tps, committed, self.serving_tps, self.staying)
        serving_tps, staying = self.serving_tps.copy(), self.staying.copy()
        serving_tps[held] -= rate
        staying[held] -= 1
        return Sums(committed_tps, committed, serving_tps, staying)


@dataclass(frozen=True, eq=False)
class Intents:
    """All announced moves, in the order of the servers' names; one entry each.

    :param who: places of the servers in the layout
    :param old_starts: what they serve still, up to ``old_ends``
    :param starts: where they want to go, up to ``ends``
    """

    who: Ints
    old_starts: Ints
    old_ends: Ints
    starts: Ints
    ends: Ints
    announced_s: Floats

    def gathered(self, holders: Ints, moving: Flags, cut: Mapping[int, Span]) -> Ints:
        """How many hold each block once some of them, one flag for each intent, have moved.

        :param cut: whole spans of servers that are shown with a part, by their places; ``holders`` counts the whole
        """
        if not moving.any():
            return holders
        old_starts, old_ends = self.old_starts, self.old_ends
        if cut:
            old_starts, old_ends = old_starts.copy(), old_ends.copy()
            for i, place in enumerate(self.who.tolist()):
                if place in cut:
                    old_starts[i], old_ends[i] = cut[place].start, cut[place].end
        holders, spans = holders.copy(), (old_starts, old_ends, self.starts, self.ends)
        loops().gather(holders, *(values[moving] for values in spans))
        return holders


@dataclass(frozen=True, eq=False)
class Everybody:
    """The servers of a view; arrays have one entry per server of the layout.

    :param rates: what each adds to a block
    :param movable: which of them serve and would make their part of a plan
    :param sure: which of them surely serve: online and renewed in time
    :param late: which of them say they serve, and have not renewed that when they should have
    :param cap_tps: the most that one server's throughput counts for
    :param present: with nobody's announced move made
    """

    layout: Layout
    rates: Floats
    movable: Flags
    sure: Flags
    late: Flags
    intents: Intents
    cap_tps: float
    present: Sums

    @cached_property
    def intending(self) -> frozenset[int]:
        """Places of those who have announced a move."""
        return frozenset(self.intents.who.tolist())

    @cached_property
    def overdue(self) -> tuple[ServerRecord, ...]:
        """The late ones, those with most to lose first."""
        late = [self.layout.records[i] for i in np.flatnonzero(self.late)]
        return tuple(sorted(late, key=lambda record: -record.throughput_tps * record.span.length))

    @cached_property
    def grain_tps(self) -> float:
        """See :class:`~swarmlab.placement.situation.Situation`."""
        total = float(self.rates.sum())
        return float((self.rates**2).sum()) / total if total > 0 else 0.0

    @cached_property
    def after_intents(self) -> Sums:
        """With all announced moves made: what those see who have announced none."""
        return self.moved(np.ones(len(self.intents.who), dtype=np.bool_))

    @cached_property
    def at_rest(self) -> Flags:
        """Which of the movable have announced no move."""
        return self.movable_but(self.intents.who)

    def movable_but(self, ahead: Ints) -> Flags:
        """Which are movable and not at some places."""
        flags = self.movable.copy()
        flags[ahead] = False
        return flags

    def moved(self, ahead: Flags) -> Sums:
        """The sums once some have gone where they announced to go.

        :param ahead: one flag for each announced move
        """
        present, intents = self.present, self.intents
        who = intents.who[ahead]
        if not len(who):
            return present
        committed_tps, committed = present.committed_tps.copy(), present.committed.copy()
        staying = present.staying.copy()
        loops().move(
            committed_tps,
            committed,
            staying,
            intents.old_starts[ahead],
            intents.old_ends[ahead],
            intents.starts[ahead],
            intents.ends[ahead],
            self.rates[who],
            self.sure[who],
        )
        return Sums(committed_tps, committed, present.serving_tps, staying)


def everybody_of(view: SwarmView) -> Everybody:
    """The servers of a view, summed up when first asked for."""
    known = view.__dict__.get("_everybody")
    if known is None:
        known = _sum_up(view)
        object.__setattr__(view, "_everybody", known)
    return known


def overdue(view: SwarmView) -> tuple[ServerRecord, ...]:
    """Servers that say they serve, and have not renewed that when they should have; those with most to lose first."""
    return everybody_of(view).overdue


def _sum_up(view: SwarmView) -> Everybody:
    layout, online_state = layout_of(view), ServerState.ONLINE
    records = layout.records
    # the lower median: of two servers the larger one is the one to distrust
    cap = MAX_OVER_MEDIAN * float(np.quantile(layout.tps, 0.5, method="lower")) if len(layout.tps) else np.inf
    rates = np.minimum(layout.tps, cap) if cap > 0 else layout.tps
    left = np.array([record.expires_at_s for record in records]) - view.seen_at_s
    finite = left[np.isfinite(left)]
    late = left < OVERDUE_SHARE * (finite.max() if len(finite) else 0.0)
    online = np.array([record.state is online_state for record in records], dtype=bool)
    movable = online & np.array([record.movable for record in records], dtype=bool)
    sure = online & ~late
    starts, ends, n_blocks = layout.starts, layout.ends, view.n_blocks
    sums = Sums(
        block_sums(starts, ends, rates, n_blocks),
        _counts(starts, ends, n_blocks),
        block_sums(starts[sure], ends[sure], rates[sure], n_blocks),
        _counts(starts[sure], ends[sure], n_blocks),
    )
    cap = cap if cap > 0 else np.inf
    return Everybody(layout, rates, movable, sure, online & late, _intents(layout), cap, sums)


def _intents(layout: Layout) -> Intents:
    found = [(i, record.intent) for i, record in enumerate(layout.records) if record.intent is not None]
    who = np.array([i for i, _ in found], dtype=np.int64)
    return Intents(
        who,
        layout.starts[who],
        layout.ends[who],
        np.array([intent.span.start for _, intent in found], dtype=np.int64),
        np.array([intent.span.end for _, intent in found], dtype=np.int64),
        np.array([intent.announced_at_s for _, intent in found], dtype=np.float64),
    )


def _counts(starts: Ints, ends: Ints, n_blocks: int) -> Ints:
    edges = np.zeros(n_blocks + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, ends, -1)
    return np.cumsum(edges[:-1])
