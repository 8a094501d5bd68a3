"""A record that is missing from one read is not a server that is gone: believe it only after a grace time.

Whole servers drop out of single reads of a DHT, and so do single blocks of a server's span (petals' issue 389,
pull request 195). A span has no holes, so one that merely shrank is a read that lost records at its edges. And a
server that is gone need not be believed for so long, if it was asked itself and nobody is there.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from swarmlab.placement.memory import Gone, Memory, Vanished
from swarmlab.placement.testimony import Answer
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarmlab.types import ServerRecord, SwarmView

# Of more servers missing at once only the strongest count: in a swarm that loses so many, the others hardly matter.
MAX_VANISHED = 30
# A server that answers without a record is believed for so many grace times: clients do not find it either.
ANSWERING_GRACES = 7


@dataclass(frozen=True)
class _Changes:
    # Who is missing or cut in one read and was not in another, first missing in this one.
    items: tuple[Vanished, ...]
    peers: frozenset[str]


NO_CHANGES = _Changes((), frozenset())


def remember(view: SwarmView, memory: Memory | None, *, grace_s: float, own_peer: str) -> Memory:
    """The memory after reading ``view``: who is missing or cut, and who is shown but gone.

    What servers said themselves (``memory.testimony``) ends the doubt: whoever refused, or no longer serves its blocks,
    is gone at once; whoever serves on is believed for another grace time, ``ANSWERING_GRACES`` of them at most. The
    silent are believed for the grace time.

    :param grace_s: how long a record is believed after it was first missing
    :param own_peer: the reader itself, which needs no record to know where it is
    """
    known = memory or Memory()
    before = known.last_view
    changes = _changes(before, view) if before is not None and before is not view else NO_CHANGES
    gone: tuple[Gone, ...] = ()
    if known.gone or known.testimony or own_peer in changes.peers:
        found = _missing(view, known, changes, own_peer)
        answers = known.testimony.by_peer if known.testimony else {}
        kept, gone = _believed(view, found, answers, grace_s), _gone(view, known.gone, found, answers)
    else:
        kept = _believed_by_all(view, known, changes, grace_s) if known.vanished or changes.items else ()
    return Memory(known.confirmations, view, kept, known.wish, known.departures, known.news_s, gone)


def missing(view: SwarmView, memory: Memory | None, own_peer: str) -> tuple[ServerRecord, ...]:
    """Servers that the memory knows and this read lacks, wholly or in part, as they were last known."""
    if memory is None or memory.last_view is None:
        return ()
    changes = _changes(memory.last_view, view) if memory.last_view is not view else NO_CHANGES
    if not memory.vanished and not changes.items:
        return ()
    return tuple(item.record for item in _missing(view, memory, changes, own_peer)[:MAX_VANISHED])


def without_gone(view: SwarmView, memory: Memory) -> SwarmView:
    """The view without those that are known to be gone; the same one for all who know that of the same servers."""
    if not memory.gone:
        return view
    peers = frozenset(item.peer_id for item in memory.gone)
    known = _kept_with(view, "_without")
    if peers not in known:
        known[peers] = view.without(peers)
    return known[peers]


def _missing(view: SwarmView, known: Memory, changes: _Changes, own_peer: str) -> list[Vanished]:
    present = _by_peer(view)
    kept = [item for item in known.vanished if _is_cut(item.record, present)]
    if changes.items:
        already = {item.record.peer_id for item in known.vanished}
        already.update(item.peer_id for item in known.gone)
        already.add(own_peer)
        kept += [item for item in changes.items if item.record.peer_id not in already]
    return kept


def _believed_by_all(
    view: SwarmView, known: Memory, changes: _Changes, grace_s: float
) -> tuple[Vanished, ...]:
    # Who is believed where nobody was asked. Kept with the view: of thousands of simulated servers many remember the
    # same and compare the same two views, and get the same tuple, so that they remember the same next time, too.
    cache = _kept_with(view, "_believed")
    key = (id(known.vanished), id(changes), grace_s)
    if key not in cache:
        kept = _believed(view, _missing(view, known, changes, ""), {}, grace_s)
        shared = cache.setdefault(tuple(map(id, kept)), kept)
        # what the keys are the addresses of has to stay there
        cache[key] = (shared, known.vanished, changes)
    return cache[key][0]


def _believed(
    view: SwarmView, found: list[Vanished], answers: Mapping[str, Answer], grace_s: float
) -> tuple[Vanished, ...]:
    now_s, kept = view.seen_at_s, []
    for item in found:
        answer = answers.get(item.record.peer_id)
        if answer is Answer.REFUSED or (answer is Answer.LEFT and not _loads(item.record)):
            continue
        answered = answer in (Answer.SERVES, Answer.LEFT)
        one = replace(item, answered_s=now_s) if answered else item
        heard = one.answered_s is not None and one.answered_s > now_s - grace_s
        if one.missing_since_s > now_s - (ANSWERING_GRACES if heard else 1) * grace_s:
            kept.append(one)
    if len(kept) > MAX_VANISHED:
        kept = sorted(kept, key=lambda item: -_strength(item.record))[:MAX_VANISHED]
    return tuple(kept)


def _loads(record: ServerRecord) -> bool:
    # It was loading its blocks, so that it does not serve them says nothing.
    return record.state is ServerState.JOINING


def _gone(
    view: SwarmView, known: tuple[Gone, ...], found: list[Vanished], answers: Mapping[str, Answer]
) -> tuple[Gone, ...]:
    # A record that expires later than the one that was wrong is a new one.
    present, cut = _by_peer(view), {item.record.peer_id for item in found}
    gone = {
        item.peer_id: item
        for item in known
        if item.expires_at_s > view.seen_at_s
        and (item.peer_id not in present or present[item.peer_id].expires_at_s <= item.expires_at_s)
    }
    for peer, answer in answers.items():
        shown = present.get(peer)
        if shown is None or shown.state is ServerState.OFFLINE:
            continue
        # of one that was cut, the part that is shown may be what it serves now
        left = answer is Answer.LEFT and peer not in cut and not _loads(shown)
        if left or answer is Answer.REFUSED:
            gone[peer] = Gone(peer, shown.expires_at_s)
    return tuple(gone[peer] for peer in sorted(gone))


def _changes(before: SwarmView, now: SwarmView) -> _Changes:
    # Servers that held blocks before and are missing or cut now, the strongest of them. Kept with the present view:
    # many simulated servers compare the same two.
    known = _kept_with(now, "_changes")
    entry = known.get(id(before))
    if entry is None or entry[0]() is not before:
        held, present = _spans(before), _by_peer(now)
        records = [held[key] for key in sorted(_keys(before) - _keys(now))]
        cut = sorted(
            [record for record in records if _is_cut(record, present)], key=lambda one: -_strength(one)
        )
        items = tuple(Vanished(record, now.seen_at_s) for record in cut[: MAX_VANISHED + 1])
        found = _Changes(items, frozenset(item.record.peer_id for item in items))
        # a weak reference, or each view would keep all earlier ones alive
        entry = known[id(before)] = (weakref.ref(before), found)
    return entry[1]


def _kept_with(view: SwarmView, name: str) -> dict[Any, Any]:
    known = view.__dict__.get(name)
    if known is None:
        known = {}
        object.__setattr__(view, name, known)
    return known


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
