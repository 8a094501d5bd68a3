"""Whose blocks are in doubt, so that they are to be asked themselves, and whether a block has nobody for sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.everybody import overdue
from swarmlab.placement.grace import MAX_VANISHED, kept_with, missing, unseen
from swarmlab.placement.layout import layout_of
from swarmlab.placement.situation import surely_served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarmlab.placement.layout import Floats
    from swarmlab.placement.memory import Memory
    from swarmlab.types import ServerRecord, Span, SwarmView

# Servers in good standing that are asked as well: to find out who is cut off, and, all of a small swarm, so that its
# plan counts on nobody who is gone too.
WITNESSES = 9
# The least share of some block's throughput that is asked for.
MATTERS = 0.05


def whom_to_ask(view: SwarmView, memory: Memory | None, own_peer: str) -> tuple[ServerRecord, ...]:
    """Servers whose blocks are in doubt, as they were last known, and some witnesses; nobody if there is no doubt.

    In doubt are those missing from this read or cut in it, and those whose record was not renewed in time. Where they
    make up too little of every block to matter, as in swarms of many hundreds nearly always, nobody is asked.
    """
    if not _matters(view, memory):
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


def _matters(view: SwarmView, memory: Memory | None) -> bool:
    changes, vanished = unseen(view, memory)
    late = overdue(view)
    if not changes.items and not vanished and not late:
        return False
    cache = kept_with(view, "_doubts")  # many servers compare the same two views
    if id(changes) not in cache:
        doubtful, total = np.zeros(view.n_blocks), layout_of(view).throughput_tps.copy()
        _add(doubtful, late)  # these are shown
        lost = [item.record for item in changes.items]
        cache[id(changes)] = (_add(doubtful, lost), _add(total, lost), changes)  # which keeps its address
    doubtful, total, _ = cache[id(changes)]
    if vanished:
        before = _add(np.zeros(view.n_blocks), [item.record for item in vanished])
        doubtful, total = doubtful + before, total + before
    return bool(((doubtful > 0) & (doubtful >= MATTERS * total)).any())


def _add(throughput_tps: Floats, records: Sequence[ServerRecord]) -> Floats:
    for record in records:
        throughput_tps[record.span.start : record.span.end] += record.throughput_tps
    return throughput_tps


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
