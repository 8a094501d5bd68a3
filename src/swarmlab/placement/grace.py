"""A record that is missing from one read is not a server that is gone: believe it only after a grace time.

Whole servers drop out of single reads of a DHT, and so do single blocks of a server's span (petals' issue 389,
pull request 195). A span has no holes, so one that merely shrank is a read that lost records at its edges.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from swarmlab.placement.memory import Memory, Vanished
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from swarmlab.types import ServerRecord, SwarmView

# Of more servers missing at once only the strongest count: in a swarm that loses so many, the others hardly matter.
MAX_VANISHED = 30


def remember(view: SwarmView, memory: Memory | None, *, grace_s: float, own_peer: str) -> Memory:
    """The memory after reading ``view``: who is missing or cut, for less than ``grace_s`` seconds.

    :param grace_s: how long a record is believed after it was first missing
    :param own_peer: the reader itself, which needs no record to know where it is
    """
    known = memory or Memory()
    before = known.last_view
    changed = _changed(before, view) if before is not None and before is not view else ()
    kept: tuple[Vanished, ...] = ()
    if known.vanished or changed:
        kept = _missing(view, known.vanished, changed, grace_s, own_peer)
    return Memory(known.confirmations, view, kept, known.wish, known.departures, known.news_s)


def _missing(
    view: SwarmView,
    vanished: tuple[Vanished, ...],
    changed: tuple[ServerRecord, ...],
    grace_s: float,
    own_peer: str,
) -> tuple[Vanished, ...]:
    present, earliest_s = _by_peer(view), view.seen_at_s - grace_s
    kept = [item for item in vanished if item.missing_since_s > earliest_s and _is_cut(item.record, present)]
    if changed:
        already = {item.record.peer_id for item in vanished}
        already.add(own_peer)
        kept += [Vanished(record, view.seen_at_s) for record in changed if record.peer_id not in already]
    if len(kept) > MAX_VANISHED:
        kept = sorted(kept, key=lambda item: -_strength(item.record))[:MAX_VANISHED]
    return tuple(kept)


def _changed(before: SwarmView, now: SwarmView) -> tuple[ServerRecord, ...]:
    # Servers that held blocks before and are missing or cut now, the strongest of them. Kept with the present view:
    # many simulated servers compare the same two.
    known = now.__dict__.get("_changed")
    if known is None:
        known = {}
        object.__setattr__(now, "_changed", known)
    entry = known.get(id(before))
    if entry is None or entry[0]() is not before:
        held, present = _spans(before), _by_peer(now)
        records = [held[key] for key in sorted(_keys(before) - _keys(now))]
        cut = sorted(
            [record for record in records if _is_cut(record, present)], key=lambda one: -_strength(one)
        )
        # a weak reference, or each view would keep all earlier ones alive
        entry = known[id(before)] = (weakref.ref(before), tuple(cut[: MAX_VANISHED + 1]))
    return entry[1]


def _strength(record: ServerRecord) -> float:
    return record.throughput_tps * record.span.length


def _keys(view: SwarmView) -> frozenset[str]:
    known = view.__dict__.get("_keys")
    if known is None:
        known = frozenset(_spans(view))
        object.__setattr__(view, "_keys", known)
    return known


def _spans(view: SwarmView) -> dict[str, ServerRecord]:
    known = view.__dict__.get("_spans")
    if known is None:
        known = {record.key: record for record in view.servers if record.state is not ServerState.OFFLINE}
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
