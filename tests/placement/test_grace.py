"""Vanished and cut records are believed for the grace time, by peer, within bounded memory."""

from __future__ import annotations

from dataclasses import replace

from swarmlab.placement import grace
from swarmlab.placement.grace import remember
from swarmlab.placement.memory import Memory
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

A = ServerRecord("a", Span(0, 4), 1.0)
B = ServerRecord("b", Span(2, 6), 2.0)


def view(at_s: float, *records: ServerRecord) -> SwarmView:
    return SwarmView(8, records, seen_at_s=at_s)


def believed(*views: SwarmView) -> dict[str, tuple[Span, float]]:
    """Who is remembered after reading the views one after another: span and since when it is missing."""
    memory: Memory | None = None
    for one in views:
        memory = remember(one, memory, grace_s=90.0, own_peer="me")
    assert memory is not None
    return {item.record.peer_id: (item.record.span, item.missing_since_s) for item in memory.vanished}


def test_a_vanished_server_is_believed_until_the_grace_time_is_over():
    seen = [view(0, A, B), view(60, A)]
    assert believed(*seen) == {"b": (B.span, 60.0)}
    assert believed(*seen, view(149, A)) == {"b": (B.span, 60.0)}
    assert believed(*seen, view(150, A)) == {}
    assert believed(*seen, view(150, A), view(160, A)) == {}  # and does not come back from memory


def test_a_server_that_is_back_is_no_longer_missing():
    assert believed(view(0, A, B), view(60, A), view(70, A, B)) == {}
    assert believed(view(0, A, B), view(60, A), view(70, A, B), view(80, A)) == {"b": (B.span, 80.0)}


def test_a_server_that_said_goodbye_is_gone():
    offline = replace(B, state=ServerState.OFFLINE)
    assert believed(view(0, A, B), view(60, A, offline)) == {}
    assert believed(view(0, A, offline), view(60, A)) == {}


def test_a_span_that_shrank_was_read_incompletely():
    cut = replace(B, span=Span(3, 6))
    assert believed(view(0, A, B), view(60, A, cut)) == {"b": (B.span, 60.0)}
    assert believed(view(0, A, B), view(60, A, cut), view(70, A)) == {"b": (B.span, 60.0)}
    assert believed(view(0, A, B), view(60, A, cut), view(200, A, cut)) == {}  # it really holds less


def test_a_span_that_moved_is_believed_at_once():
    assert believed(view(0, A, B), view(60, A, replace(B, span=Span(3, 7)))) == {}


def test_the_reader_itself_is_never_missing():
    memory = remember(view(0, A, B), None, grace_s=90.0, own_peer="b")
    assert remember(view(60, A), memory, grace_s=90.0, own_peer="b").vanished == ()


def test_nobody_is_missing_without_grace():
    memory = remember(view(0, A, B), None, grace_s=0.0, own_peer="me")
    later = remember(view(60, A), memory, grace_s=0.0, own_peer="me")
    assert remember(view(60, A), later, grace_s=0.0, own_peer="me").vanished == ()


def test_memory_is_bounded():
    crowd = tuple(ServerRecord(f"p{i:05d}", Span(0, 1), 1.0) for i in range(grace.MAX_VANISHED + 5))
    memory = remember(view(0, *crowd), None, grace_s=90.0, own_peer="me")
    assert len(remember(view(60), memory, grace_s=90.0, own_peer="me").vanished) == grace.MAX_VANISHED


def test_remembering_changes_no_value():
    memory = remember(view(0, A, B), None, grace_s=90.0, own_peer="me")
    kept = replace(memory)
    remember(view(60, A), memory, grace_s=90.0, own_peer="me")
    assert memory == kept
