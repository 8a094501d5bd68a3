"""What a server sees of all others: where they are going, and who surely serves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from swarmlab.placement.everybody import everybody_of
from swarmlab.placement.layout import spans_of
from swarmlab.placement.rule import loops

if TYPE_CHECKING:
    from swarmlab.placement.everybody import Everybody, Flags, Sums
    from swarmlab.placement.layout import Floats, Ints, Layout
    from swarmlab.placement.memory import Gone, Memory
    from swarmlab.types import Intent, ServerRecord, Span, SwarmView

NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Situation:
    """Everybody but the server that looks. Arrays have one entry per block.

    :param committed_tps: throughput once all have arrived where they serve, load, or have announced to go
    :param committed: how many servers that is, and ``gathered`` if rivals' moves announced later count as well
    :param serving_tps: throughput of those that surely serve now: online, seen in this read, renewed in time
    :param staying: how many of those have not announced to leave the block
    :param cap_tps: the most that one server's throughput counts for
    :param rates_tps: what each server of the layout adds to a block
    :param movable: which of them serve, would make their part of a plan, and are not on their way already
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
    grain_tps: float


def situation(view: SwarmView, peer_id: str, memory: Memory | None, intent: Intent | None) -> Situation:
    """The situation of server ``peer_id``.

    :param memory: what it remembers, for servers that are missing from this read and those that are shown but gone
    :param intent: what it has announced itself; rivals' intents count only if they were announced before
    """
    everybody = everybody_of(view)
    layout, rates = everybody.layout, everybody.rates
    own = layout.index(peer_id)
    gone = _places(layout, memory.gone) if memory and memory.gone else NOBODY
    on_their_way = _on_their_way(everybody, peer_id, gone, intent)
    sums, movable = on_their_way.sums, on_their_way.movable
    if gone:
        movable = movable.copy()
        movable[list(gone)] = False
        for i in sorted(gone):
            sums = sums.without(layout.records[i].span, float(rates[i]), int(everybody.sure[i]))
    missing: list[ServerRecord] = []
    cut: dict[int, Span] = {}
    for item in memory.vanished if memory else ():
        shown = layout.index(item.record.peer_id)
        if shown in on_their_way.ahead:
            continue  # shown with a part of its span, and counted where it goes
        missing.append(item.record)
        if shown is not None:  # with a part of its span, in place of which the whole counts
            sums = sums.without(layout.records[shown].span, float(rates[shown]), 0)
            cut[shown] = item.record.span
    start, end, rate, sure = 0, 0, 0.0, False
    if own is not None:
        start, end, rate, sure = layout.starts[own], layout.ends[own], rates[own], everybody.sure[own]
    committed_tps, committed = sums.committed_tps.copy(), sums.committed.copy()
    serving_tps, staying = sums.serving_tps.copy(), sums.staying.copy()
    starts, ends, more = spans_of(missing)
    more = np.minimum(more, everybody.cap_tps) if missing else more
    loops().others(committed_tps, committed, serving_tps, staying, start, end, rate, sure, starts, ends, more)
    return Situation(
        committed_tps,
        committed,
        committed
        if on_their_way.later is None
        else everybody.intents.gathered(committed, on_their_way.later, cut),
        serving_tps,
        staying,
        everybody.cap_tps,
        rates,
        movable,
        everybody.grain_tps,
    )


class _OnTheirWay(NamedTuple):
    # Whose announced moves count for one server, as made (ahead) or as coming (later: flags of the intents).
    sums: Sums
    movable: Flags
    ahead: frozenset[int]
    later: Flags | None


def _on_their_way(
    everybody: Everybody, peer_id: str, gone: frozenset[int], intent: Intent | None
) -> _OnTheirWay:
    own = everybody.layout.index(peer_id)
    if intent is None and own not in everybody.intending and gone.isdisjoint(everybody.intending):
        return _OnTheirWay(everybody.after_intents, everybody.at_rest, everybody.intending, None)
    intents = everybody.intents
    counts = intents.who != (-1 if own is None else own)
    for i in gone & everybody.intending:
        counts &= intents.who != i
    first = counts
    if intent is not None:
        # Of two intents the one announced earlier goes first, so that of two rivals exactly one counts on the other.
        place, at_s = everybody.layout.place(peer_id), intent.announced_at_s
        earlier = (intents.announced_s < at_s) | ((intents.announced_s == at_s) & (intents.who < place))
        first = counts & earlier
    ahead = intents.who[first]
    return _OnTheirWay(
        everybody.moved(first), everybody.movable_but(ahead), frozenset(ahead.tolist()), counts & ~first
    )


def _places(layout: Layout, gone: tuple[Gone, ...]) -> frozenset[int]:
    found = (layout.index(item.peer_id) for item in gone)
    return frozenset(i for i in found if i is not None)


def surely_served(view: SwarmView, memory: Memory | None) -> Ints:
    """How many servers surely serve each block: online, renewed in time, and not known to be gone."""
    everybody = everybody_of(view)
    served = everybody.present.staying.copy()
    for i in _places(everybody.layout, memory.gone) if memory else ():
        if everybody.sure[i]:
            served[everybody.layout.starts[i] : everybody.layout.ends[i]] -= 1
    return served


def blocks_left(old: Span, new: Span) -> tuple[slice, slice]:
    """The blocks of ``old`` that are not in ``new``, as two slices, of which one or both may be empty."""
    return slice(old.start, min(old.end, new.start)), slice(max(old.start, new.end), old.end)
