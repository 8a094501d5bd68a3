"""Whose blocks are in doubt, so that they are to be asked themselves, and whether a block has nobody for sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.placement.grace import MAX_VANISHED, missing
from swarmlab.placement.layout import layout_of
from swarmlab.placement.situation import overdue
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarmlab.placement.memory import Memory
    from swarmlab.types import ServerRecord, Span, SwarmView

# Servers in good standing that are asked as well: to find out who is cut off, and, all of a small swarm, so that its
# plan counts on nobody who is gone too.
WITNESSES = 9


def whom_to_ask(view: SwarmView, memory: Memory | None, own_peer: str) -> tuple[ServerRecord, ...]:
    """Servers whose blocks are in doubt, as they were last known, and some witnesses; nobody if there is no doubt.

    In doubt are those missing from this read or cut in it, and those whose record was not renewed in time.
    """
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
    gone = {item.peer_id for item in memory.gone} if memory else set()
    gone.update(record.peer_id for record in overdue(view))
    held = {
        block
        for record in view.servers
        if record.state is ServerState.ONLINE and record.peer_id not in gone
        for block in record.span
    }
    return any(block not in held and block not in here for block in range(view.n_blocks))
