"""Who is asked itself: those in doubt, and witnesses; and what of a swarm is surely served."""

from __future__ import annotations

from dataclasses import replace

from swarmlab.placement import doubts
from swarmlab.placement.doubts import has_hole, whom_to_ask
from swarmlab.placement.grace import MAX_VANISHED
from swarmlab.placement.memory import Gone, Memory, Vanished
from swarmlab.placement.testimony import Answer, Answers
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

A, B, C, D, E, ME = (
    ServerRecord(name, Span(0, 4), 1.0, expires_at_s=200.0) for name in ("a", "b", "c", "d", "e", "me")
)
SOLE = ServerRecord("sole", Span(4, 8), 2.0, expires_at_s=200.0)


def view(at_s: float, *records: ServerRecord) -> SwarmView:
    return SwarmView(8, records, seen_at_s=at_s)


def names(asked: tuple[ServerRecord, ...]) -> list[str]:
    return [record.peer_id for record in asked]


def remembering(*records: ServerRecord, **more: object) -> Memory:
    return replace(Memory(last_view=view(90.0, *records)), **more)  # type: ignore[arg-type]


def test_nobody_is_asked_in_a_swarm_without_doubt():
    assert whom_to_ask(view(100.0, A, ME, SOLE), remembering(A, ME, SOLE), "me") == ()
    assert whom_to_ask(view(100.0, A, ME, SOLE), None, "me") == ()


def test_whoever_vanished_is_asked_about_what_it_held_and_a_few_others_with_it(monkeypatch):
    monkeypatch.setattr(doubts, "WITNESSES", 3)
    asked = whom_to_ask(view(100.0, A, B, C, D, E, ME), remembering(A, B, C, D, E, ME, SOLE), "me")
    assert asked[0] == SOLE
    assert names(asked[1:]) == ["a", "b", "c"]
    others = whom_to_ask(view(100.0, A, B, C, D, E), remembering(A, B, C, D, E, SOLE), "c")
    assert names(others)[1:] == ["d", "e", "a"]


def test_in_a_small_swarm_all_are_asked():
    crowd = [ServerRecord(f"p{i}", Span(0, 4), 1.0) for i in range(8)]
    asked = whom_to_ask(view(100.0, A, ME, *crowd), remembering(A, ME, SOLE, *crowd), "me")
    assert len(asked) == 10


def test_one_whose_span_was_cut_is_asked_about_the_whole():
    cut = replace(SOLE, span=Span(4, 6))
    assert whom_to_ask(view(100.0, A, cut), remembering(A, SOLE), "me") == (SOLE, A)


def test_a_record_that_was_not_renewed_in_time_is_a_doubt_before_it_lapses():
    late = replace(SOLE, expires_at_s=130.0)
    assert whom_to_ask(view(100.0, A, late), None, "me") == (late, A)
    # and no more once it is known to be false, until there is a new one
    known = Memory(gone=(Gone("sole", 130.0),))
    assert whom_to_ask(view(100.0, A, late), known, "me") == ()
    assert whom_to_ask(view(100.0, A, replace(late, expires_at_s=131.0)), known, "me") != ()


def test_in_a_large_swarm_a_doubt_that_could_change_little_is_not_worth_a_question():
    many = [ServerRecord(f"p{i:03d}", Span(0, 8), 1.0, expires_at_s=200.0) for i in range(100)]
    assert whom_to_ask(view(100.0, *many[4:]), remembering(*many), "me") == ()
    assert len(whom_to_ask(view(100.0, *many[6:]), remembering(*many), "me")) == 6 + doubts.WITNESSES
    # those missing before and those that are late add up
    since = tuple(Vanished(record, 90.0) for record in many[:3])
    late = [replace(record, expires_at_s=110.0) for record in many[3:6]]
    asked = whom_to_ask(view(100.0, *late, *many[6:]), remembering(*many[3:], vanished=since), "me")
    assert len(asked) == 6 + doubts.WITNESSES


def test_a_server_does_not_ask_itself():
    late = replace(ME, expires_at_s=120.0)
    assert whom_to_ask(view(100.0, A, late), remembering(A, ME), "me") == ()
    assert whom_to_ask(view(100.0, A), remembering(A, ME), "me") == ()


def test_so_many_and_no_more_are_asked():
    crowd = [ServerRecord(f"p{i:03d}", Span(0, 1), 1.0) for i in range(MAX_VANISHED + 20)]
    asked = whom_to_ask(view(100.0, A), remembering(A, *crowd), "me")
    assert len(asked) == MAX_VANISHED + 1


def test_nobody_of_several_who_answers_means_that_oneself_is_cut_off():
    assert Answers({"a": Answer.SILENT, "b": Answer.REFUSED}).cut_off
    assert not Answers({"a": Answer.SILENT, "b": Answer.LEFT}).cut_off
    assert not Answers({"a": Answer.REFUSED}).cut_off  # the only other server: its machine has answered


def test_a_hole_is_a_block_that_nobody_surely_serves():
    here = Span(0, 4)
    assert not has_hole(view(100.0, A, SOLE), None, here)
    assert has_hole(view(100.0, A), None, here)
    assert has_hole(view(100.0, A, replace(SOLE, state=ServerState.JOINING)), None, here)
    assert has_hole(view(100.0, A, replace(SOLE, expires_at_s=120.0)), None, here)
    assert has_hole(view(100.0, A, SOLE), Memory(gone=(Gone("sole", 200.0),)), here)
    assert not has_hole(view(100.0, SOLE), None, here)  # what it holds itself needs no record
