"""A record that is missing from one read is not a server that is gone: believe it only after a grace time.

Whole servers drop out of single reads of a DHT, and so do single blocks of a server's span (petals' issue 389,
pull request 195). A span has no holes, so one that merely shrank is a read that lost records at its edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from swarmlab.placement.memory import Memory, Vanished
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from swarmlab.types import ServerRecord, SwarmView

# More servers than this missing at once is a partition, not lost records; and memory stays bounded.
MAX_VANISHED = 1000


def remember(view: SwarmView, memory: Memory | None, *, grace_s: float, own_peer: str) -> Memory:
    """The memory after reading ``view``: who is missing or cut, for less than ``grace_s`` seconds.

    :param grace_s: how long a record is believed after it was first missing
    :param own_peer: the reader itself, which needs no record to know where it is
    """
    known = memory or Memory()
    present = _by_peer(view)
    kept = [
        item
        for item in known.vanished
        if view.seen_at_s - item.missing_since_s < grace_s and _is_cut(item.record, present)
    ]
    already = {item.record.peer_id for item in known.vanished}
    if known.last_view is not None and known.last_view is not view:
        kept += [
            Vanished(record, view.seen_at_s)
            for record in _changed(known.last_view, view)
            if record.peer_id not in already and record.peer_id != own_peer and _is_cut(record, present)
        ]
    return replace(known, last_view=view, vanished=tuple(kept[-MAX_VANISHED:]))


def _changed(before: SwarmView, now: SwarmView) -> list[ServerRecord]:
    # Servers that held blocks before and are not in the present view with the same span.
    held = _spans(before)
    return [held[key] for key in sorted(held.keys() - _spans(now).keys())]


def _spans(view: SwarmView) -> dict[tuple[str, int, int], ServerRecord]:
    known = view.__dict__.get("_spans")
    if known is None:
        known = {
            (record.peer_id, record.span.start, record.span.end): record
            for record in view.servers
            if record.state is not ServerState.OFFLINE
        }
        object.__setattr__(view, "_spans", known)
    return known


def _by_peer(view: SwarmView) -> dict[str, ServerRecord]:
    known = view.__dict__.get("_by_peer")
    if known is None:
        known = {record.peer_id: record for record in view.servers}
        object.__setattr__(view, "_by_peer", known)
    return known


def _is_cut(record: ServerRecord, present: dict[str, ServerRecord]) -> bool:
    # Missing altogether, or shown with a part of its span; a server that says it is offline is neither.
    shown = present.get(record.peer_id)
    if shown is None:
        return True
    if shown.state is ServerState.OFFLINE or shown.span == record.span:
        return False
    return record.span.covers(shown.span)
