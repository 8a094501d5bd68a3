"""A record that is missing from one read is not a server that is gone: believe it only after a grace time.

Whole servers drop out of single reads of a DHT, and so do single blocks of a server's span (petals' issue 389,
pull request 195). A span has no holes, so one that merely shrank is a read that lost records at its edges. And a
server that is gone need not be believed for so long, if it was asked itself and nobody is there.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from swarmlab.placement.memory import Gone, Memory, Vanished
from swarmlab.placement.testimony import Answer
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarmlab.types import ServerRecord, SwarmView

# Of more servers missing at once only the strongest count: in a swarm that loses so many, the others hardly matter.
MAX_VANISHED = 30
# A server that answers without a record is believed for so many grace times: clients do not find it either.
ANSWERING_GRACES = 7


@dataclass(frozen=True)
class Changes:
    """Who is missing or cut in one read and was not in another, first missing in this one."""

    items: tuple[Vanished, ...]
    peers: frozenset[str]


NO_CHANGES = Changes((), frozenset())


def remember(view: SwarmView, memory: Memory | None, *, grace_s: float, own_peer: str) -> Memory:
    """The memory after reading ``view``: who is missing or cut, and who is shown but gone.

    What servers said themselves (``memory.testimony``) ends the doubt: whoever refused, or no longer serves its blocks,
    is gone at once; whoever serves on is believed for another grace time, ``ANSWERING_GRACES`` of them at most. The
    silent are believed for the grace time.

    :param grace_s: how long a record is believed after it was first missing
    :param own_peer: the reader itself, which needs no record to know where it is
    """
    known = memory or Memory()
    found = _missing(view, known, own_peer)
    answers = known.testimony.by_peer if known.testimony else {}
    kept = _believed(view, found, answers, grace_s) if found else ()
    gone = _gone(view, known.gone, found, answers) if known.gone or answers else ()
    return replace(known, last_view=view, vanished=kept, gone=gone, testimony=None)


def missing(view: SwarmView, memory: Memory | None, own_peer: str) -> tuple[ServerRecord, ...]:
    """Servers that the memory knows and this read lacks, wholly or in part, as they were last known."""
    found = _missing(view, memory, own_peer) if memory else []
    return tuple(item.record for item in found[:MAX_VANISHED])


def without_gone(view: SwarmView, memory: Memory) -> SwarmView:
    """The view without those that are known to be gone and have not announced themselves since; the same one for all
    who know that of the same servers.
    """
    present = _by_peer(view)
    peers = frozenset(
        item.peer_id
        for item in memory.gone
        if item.peer_id in present and present[item.peer_id].expires_at_s <= item.expires_at_s
    )
    if not peers:
        return view
    known = kept_with(view, "_without")
    if peers not in known:
        known[peers] = view.without(peers)
    return known[peers]


def _missing(view: SwarmView, known: Memory, own_peer: str) -> list[Vanished]:
    changes, vanished = unseen(view, known)
    kept: list[Vanished] = []
    if vanished:
        present = _by_peer(view)
        kept = [
            item for item in vanished if item.record.peer_id not in present or _is_cut(item.record, present)
        ]
    if changes.items:
        already = {item.record.peer_id for item in vanished}
        already.update([item.peer_id for item in known.gone])
        already.add(own_peer)
        new = changes.items if already.isdisjoint(changes.peers) else ()
        kept += new or [item for item in changes.items if item.record.peer_id not in already]
    return kept


def unseen(view: SwarmView, memory: Memory | None) -> tuple[Changes, tuple[Vanished, ...]]:
    """Who may be missing from this read: what changed since the last one, and who was missing before."""
    if memory is None or memory.last_view is None or memory.last_view is view:
        return NO_CHANGES, memory.vanished if memory else ()
    return _changes(memory.last_view, view), memory.vanished


def _believed(
    view: SwarmView, found: Sequence[Vanished], answers: Mapping[str, Answer], grace_s: float
) -> tuple[Vanished, ...]:
    now_s, kept = view.seen_at_s, []
    if not answers:  # as nearly always in a large swarm
        unheard_s, heard_s = now_s - grace_s, now_s - ANSWERING_GRACES * grace_s
        kept = [
            item for item in found
            if item.missing_since_s > unheard_s
            or (item.answered_s is not None and item.answered_s > unheard_s and item.missing_since_s > heard_s)
        ]  # fmt: skip
        found = ()
    for item in found:
        answer = answers.get(item.record.peer_id)
        if _denies(answer, item.record):
            continue
        answered = answer in (Answer.SERVES, Answer.LEFT)
        one = replace(item, answered_s=now_s) if answered else item
        heard = one.answered_s is not None and one.answered_s > now_s - grace_s
        if one.missing_since_s > now_s - (ANSWERING_GRACES if heard else 1) * grace_s:
            kept.append(one)
    if len(kept) > MAX_VANISHED:
        kept = sorted(kept, key=lambda item: _weakness(item.record))[:MAX_VANISHED]
    return tuple(kept)


def _denies(answer: Answer | None, record: ServerRecord) -> bool:
    # Of one that was loading its blocks it says nothing that it does not serve them.
    left = answer is Answer.LEFT and record.state is not ServerState.JOINING
    return left or answer is Answer.REFUSED


def _gone(
    view: SwarmView, known: tuple[Gone, ...], found: list[Vanished], answers: Mapping[str, Answer]
) -> tuple[Gone, ...]:
    # A record that expires later than the one that was wrong is a new one. One that a read lost is noted as well: the
    # next read may find it again.
    present, cut = _by_peer(view), {item.record.peer_id for item in found}
    gone = {
        item.peer_id: item
        for item in known
        if item.expires_at_s > view.seen_at_s
        and (item.peer_id not in present or present[item.peer_id].expires_at_s <= item.expires_at_s)
    }
    for item in found:
        record = item.record
        answer = answers.get(record.peer_id) if record.peer_id not in present else None
        # without a known lifetime nothing could show that a later record is a new one
        if view.seen_at_s < record.expires_at_s < math.inf and _denies(answer, record):
            gone[record.peer_id] = Gone(record.peer_id, record.expires_at_s)
    for peer, answer in answers.items():
        shown = present.get(peer)
        if shown is None or shown.state is ServerState.OFFLINE:
            continue
        # of one that was cut, the part that is shown may be what it serves now
        if _denies(answer, shown) and (answer is Answer.REFUSED or peer not in cut):
            gone[peer] = Gone(peer, shown.expires_at_s)
    return tuple(gone[peer] for peer in sorted(gone))


def _changes(before: SwarmView, now: SwarmView) -> Changes:
    # Servers that held blocks before and are missing or cut now, the strongest of them. Kept with the present view:
    # many simulated servers compare the same two.
    known = kept_with(now, "_changes")
    entry = known.get(id(before))
    if entry is None or entry[0]() is not before:
        held, present = _by_peer(before), _by_peer(now)
        lost = [held[key.rpartition(" ")[0]] for key in _keys(before) - _keys(now)]
        cut = [record for record in lost if record.peer_id not in present or _is_cut(record, present)]
        cut.sort(key=lambda one: (_weakness(one), one.key))
        items = tuple(Vanished(record, now.seen_at_s) for record in cut[: MAX_VANISHED + 1])
        found = Changes(items, frozenset(item.record.peer_id for item in items))
        # a weak reference, or each view would keep all earlier ones alive
        entry = known[id(before)] = (weakref.ref(before), found)
    return entry[1]


def kept_with(view: SwarmView, name: str) -> dict[Any, Any]:
    """A dictionary of that name that lives as long as the view, for what many readers would reckon again."""
    known = view.__dict__.get(name)
    if known is None:
        known = {}
        object.__setattr__(view, name, known)
    return known


def _weakness(record: ServerRecord) -> float:
    # the strongest first
    return record.throughput_tps * (record.span.start - record.span.end)


def _keys(view: SwarmView) -> frozenset[str]:
    # who holds what: server and span in one text
    known = view.__dict__.get("_keys")
    if known is None:
        offline = ServerState.OFFLINE
        known = frozenset([record.key for record in view.servers if record.state is not offline])
        object.__setattr__(view, "_keys", known)
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
