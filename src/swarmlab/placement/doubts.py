"""Whose blocks are in doubt, so that they are to be asked themselves, and whether a block has nobody for sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.everybody import overdue
from swarmlab.placement.grace import MAX_VANISHED, kept_with, missing, unseen
from swarmlab.placement.layout import layout_of, spans_of
from swarmlab.placement.rule import loops
from swarmlab.placement.situation import surely_served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarmlab.placement.grace import Changes
    from swarmlab.placement.layout import Floats
    from swarmlab.placement.memory import Memory
    from swarmlab.types import ServerRecord, Span, SwarmView

# Servers in good standing that are asked as well: to find out who is cut off, and, all of a small swarm, so that its
# plan counts on nobody who is gone too.
WITNESSES = 9
# The least share of some block's throughput that is asked for.
MATTERS = 0.05
# What is less than this share of that is less, whatever float sums make of it.
CLEARLY = 1 - 1e-6
TINY = 1e-300


def whom_to_ask(view: SwarmView, memory: Memory | None, own_peer: str) -> tuple[ServerRecord, ...]:
    """Servers whose blocks are in doubt, as they were last known, and some witnesses; nobody if there is no doubt.

    In doubt are those missing from this read or cut in it, and those whose record was not renewed in time. Where they
    make up too little of every block to matter, as in swarms of many hundreds nearly always, nobody is asked.
    """
    if not matters(view, memory):
        return ()
    doubtful = {item.peer_id: item for item in missing(view, memory, own_peer)}
    known = {item.peer_id: item.expires_at_s for item in memory.gone} if memory and memory.gone else {}
    for record in overdue(view):
        if len(doubtful) >= MAX_VANISHED:
            break
        if record.peer_id != own_peer and record.expires_at_s > known.get(record.peer_id, -1.0):
            doubtful.setdefault(record.peer_id, record)
    if not doubtful:
        return ()
    return (*doubtful.values(), *_witnesses(view, doubtful, own_peer))


def matters(view: SwarmView, memory: Memory | None) -> bool:
    """Whether those in doubt make up ``MATTERS`` of some block, the server's own records among them."""
    changes, vanished = unseen(view, memory)
    if not changes.items and not vanished and not overdue(view):
        return False
    cache = kept_with(view, "_doubts")  # many servers compare the same two views
    doubt = cache.get(id(changes))
    if doubt is None:
        doubt = cache[id(changes)] = _doubt(view, changes)
    if not vanished:
        return doubt.matters
    # as in most swarms of many hundreds: even if all who vanished earlier were on the block that lacks most
    earlier_tps = 0.0
    for item in vanished:
        earlier_tps += item.record.throughput_tps
    if doubt.share + earlier_tps / max(doubt.weakest_tps, TINY) < CLEARLY * MATTERS:
        return False
    earlier = spans_of([item.record for item in vanished])
    return loops().any_share(doubt.doubtful_tps, doubt.total_tps, *earlier, MATTERS)


@dataclass(frozen=True, eq=False)
class _Doubt:
    # What is in doubt because of one view and of what changed since another: of each block, and of all it has.
    doubtful_tps: Floats
    total_tps: Floats
    matters: bool
    share: float  # the largest of any block
    weakest_tps: float  # the least that a block has
    changes: Changes  # which keeps its address


def _doubt(view: SwarmView, changes: Changes) -> _Doubt:
    late, lost = spans_of(overdue(view)), spans_of([item.record for item in changes.items])
    doubtful, total = np.zeros(view.n_blocks), layout_of(view).throughput_tps.copy()
    loops().add(doubtful, *late)  # these are shown, so the total has them
    loops().add(doubtful, *lost)
    loops().add(total, *lost)
    share = float((doubtful / np.maximum(total, TINY)).max())
    matters = loops().any_share(doubtful, total, *spans_of(()), MATTERS)
    return _Doubt(doubtful, total, matters, share, float(total.min()), changes)


def _witnesses(view: SwarmView, doubtful: Mapping[str, ServerRecord], own_peer: str) -> list[ServerRecord]:
    # The next ones in the order of their names: every server has others, so nobody is asked by all.
    layout, late = layout_of(view), {record.peer_id for record in overdue(view)}
    place, found = layout.place(own_peer), []
    for i in range(len(layout.records)):
        record = layout.records[(place + i) % len(layout.records)]
        if record.peer_id != own_peer and record.peer_id not in doubtful and record.peer_id not in late:
            found.append(record)
        if len(found) == WITNESSES:
            break
    return found


def has_hole(view: SwarmView, memory: Memory | None, here: Span) -> bool:
    """Is there a block that nobody surely serves? Those whose records are missing, late or known to be false do not.

    :param here: what the asking server serves itself
    """
    served = surely_served(view, memory) > 0
    served[here.start : here.end] = True
    return not served.all()
