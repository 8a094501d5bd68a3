"""Vanished and cut records are believed for the grace time, by peer, within bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swarmlab.placement import grace
from swarmlab.placement.doubts import has_hole
from swarmlab.placement.grace import remember
from swarmlab.placement.memory import Gone, Memory
from swarmlab.placement.testimony import Answer, Answers
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


def heard(memory: Memory, at_s: float, answer: Answer, *shown: ServerRecord) -> Memory:
    """The memory after a read in which b was in doubt and answered so."""
    memory = replace(memory, testimony=Answers({"a": Answer.SERVES, "b": answer}))
    return remember(view(at_s, *shown), memory, grace_s=90.0, own_peer="me")


def knowing(*records: ServerRecord) -> Memory:
    return remember(view(0, *records), None, grace_s=90.0, own_peer="me")


def test_one_that_refuses_or_has_left_is_gone_at_once():
    for answer in (Answer.REFUSED, Answer.LEFT):
        first = heard(knowing(A, B), 60, answer, A)
        assert (first.vanished, first.gone, first.testimony) == ((), (), None)
        later = remember(view(61, A), knowing(A, B), grace_s=90.0, own_peer="me")
        assert len(later.vanished) == 1
        assert heard(later, 62, answer, A).vanished == ()


def test_one_that_is_silent_is_believed_for_the_grace_time():
    memory = heard(knowing(A, B), 60, Answer.SILENT, A)
    assert [item.missing_since_s for item in memory.vanished] == [60.0]
    assert heard(memory, 149, Answer.SILENT, A).vanished
    assert not heard(memory, 151, Answer.SILENT, A).vanished


def test_one_that_serves_on_is_believed_as_long_as_it_says_so_but_not_for_ever():
    memory = knowing(A, B)
    for at_s in range(60, 60 + grace.ANSWERING_GRACES * 90, 60):
        memory = heard(memory, at_s, Answer.SERVES, A)
        assert [item.record for item in memory.vanished] == [B]
    assert not heard(memory, 60 + grace.ANSWERING_GRACES * 90, Answer.SERVES, A).vanished


def test_after_its_last_answer_a_server_is_believed_for_the_grace_time():
    memory = heard(heard(knowing(A, B), 60, Answer.SERVES, A), 140, Answer.SERVES, A)
    assert heard(memory, 229, Answer.SILENT, A).vanished
    assert not heard(memory, 231, Answer.SILENT, A).vanished
    assert not heard(memory, 141, Answer.REFUSED, A).vanished


def test_one_that_was_loading_need_not_serve_its_blocks():
    loading = replace(B, state=ServerState.JOINING)
    assert heard(knowing(A, loading), 60, Answer.LEFT, A).vanished
    assert not heard(knowing(A, loading), 60, Answer.REFUSED, A).vanished


def test_of_one_that_is_late_only_a_newer_record_is_believed_again():
    late = replace(B, expires_at_s=100.0)
    memory = heard(knowing(A, late), 60, Answer.REFUSED, A, late)
    assert memory.gone == (Gone("b", 100.0),)
    assert grace.without_gone(view(60, A, late), memory).servers == (A,)
    for shown in ((A, late), (A,)):  # a read that lost the record changes nothing
        memory = remember(view(70, *shown), memory, grace_s=90.0, own_peer="me")
        assert (memory.gone, memory.vanished) == ((Gone("b", 100.0),), ())
    renewed = replace(late, expires_at_s=200.0)
    assert grace.without_gone(view(80, A, renewed), memory).servers == (A, renewed)
    assert remember(view(80, A, renewed), memory, grace_s=90.0, own_peer="me").gone == ()


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.LEFT])
def test_of_one_that_was_missing_and_gone_the_old_record_is_not_believed_when_it_is_found_again(answer):
    late = replace(B, expires_at_s=100.0)
    memory = heard(knowing(A, late), 60, answer, A)
    assert memory.gone == (Gone("b", 100.0),)
    again = remember(view(70, A, late), memory, grace_s=90.0, own_peer="me")
    assert grace.without_gone(view(70, A, late), again).servers == (A,)
    assert has_hole(SwarmView(8, (A, late), seen_at_s=70.0), again, Span(0, 2))
    renewed = replace(late, expires_at_s=200.0)
    assert grace.without_gone(view(80, A, renewed), again).servers == (A, renewed)
    assert remember(view(101, A), again, grace_s=90.0, own_peer="me").gone == (), "it has lapsed"


def test_one_that_was_loading_when_it_was_missing_may_still_come():
    loading = replace(B, state=ServerState.JOINING, expires_at_s=100.0)
    assert heard(knowing(A, loading), 60, Answer.LEFT, A).gone == ()


def test_a_record_known_to_be_false_that_lapses_is_no_new_doubt():
    late = replace(B, expires_at_s=100.0)
    memory = heard(knowing(A, late), 60, Answer.REFUSED, A, late)
    for at_s in (101, 102):
        memory = remember(view(at_s, A), memory, grace_s=90.0, own_peer="me")
        assert (memory.gone, memory.vanished) == ((), ())


def test_of_one_that_was_cut_and_has_left_the_rest_counts():
    cut = replace(B, span=Span(3, 6))
    memory = heard(knowing(A, B), 60, Answer.LEFT, A, cut)
    assert (memory.vanished, memory.gone) == ((), ())
    assert heard(knowing(A, B), 60, Answer.REFUSED, A, cut).gone == (Gone("b", cut.expires_at_s),)


def test_all_who_know_the_same_share_one_view():
    shown = view(60, A, replace(B, expires_at_s=100.0))
    memory = Memory(gone=(Gone("b", 100.0),))
    assert grace.without_gone(shown, memory).servers == (A,)
    assert grace.without_gone(shown, memory) is grace.without_gone(shown, replace(memory))
    assert grace.without_gone(shown, Memory()) is shown


def test_servers_that_remember_the_same_share_it_but_nobody_misses_itself():
    first, second, third = view(0, A, B), view(60, A), view(100, A)

    def read(own_peer: str, *views: SwarmView) -> Memory | None:
        memory = None
        for one in views:
            memory = remember(one, memory, grace_s=90.0, own_peer=own_peer)
        return memory

    mine, theirs = (read(peer, first, second, third) for peer in ("me", "you"))
    assert mine is not None
    assert theirs is not None
    assert mine.vanished[0] is theirs.vanished[0]
    assert [item.record for item in mine.vanished] == [B]
    own = read("b", first, second, third)
    assert own is not None
    assert own.vanished == ()
    later = read("me", third, second)
    assert later is not None
    assert later.vanished == (), "who has seen something else remembers something else"
