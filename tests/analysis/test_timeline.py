from __future__ import annotations

import pytest

from swarmlab.analysis.timeline import events_of, timeline

FAULT = {"t": 2.0, "arm": "petals", "scenario": "s", "fault": "kill", "target": "c", "span_start": 8, "span_end": 16,
         "stage": "confirm", "at_token": 3, "ok": True, "detail": "gone"}  # fmt: skip
RELOAD = {"t": 5.0, "arm": "petals", "server": "a", "old_start": 0, "old_end": 4, "new_start": 0, "new_end": 4,
          "no_op": True, "loaded": 4, "redundant": 4, "out_of_service_s": 12.0}  # fmt: skip
DECISION = {"t": 4.0, "arm": "petals", "server": "a", "moved": True, "old": [0, 4], "chosen": [2, 6],
            "target": [2, 6], "reason": "a gap"}  # fmt: skip
FAILOVER = {"t": 3.0, "arm": "swarmlab", "session": 0, "token": 3, "cause": "broken", "total_s": 0.5,
            "tokens_replayed": 9, "failed": [{"start": 8, "end": 16, "cause": "broken"}],
            "spans": [{"start": 8, "end": 12}, {"start": 12, "end": 16}]}  # fmt: skip
SERVER = {"t": 1.0, "arm": "", "server": "a", "state": "online", "start": 0, "end": 4}


def words(kind, row):
    return [event.words for event in events_of(kind, row)]


def test_events_come_in_the_order_of_time_and_each_says_what_happened():
    found = timeline(
        {"reloads": [RELOAD], "faults": [FAULT], "servers": [SERVER], "decisions": [DECISION], "failovers": [FAILOVER],
         "steps": [{"t": 0.0}]}
    )  # fmt: skip
    assert [event.words for event in found] == [
        "a 0:4 is online",
        "kill of c (8:16) before token 3 happened: gone",
        "session 0 lost 8:16 (broken) at token 3, went on through 8:12, 12:16 after 0.5 s (9 tokens replayed)",
        "a decides to move from 0:4 to 2:6: a gap",
        "a moves from 0:4 to 0:4, for nothing: 4 blocks loaded (4 of them held already), out of service for 12 s",
    ]
    assert [event.arm for event in found] == ["", "petals", "swarmlab", "petals", "petals"]


@pytest.mark.parametrize("stage", ["setup", "inject", "cleanup"])
def test_the_steps_of_a_fault_that_went_well_are_no_news(stage):
    assert words("faults", {**FAULT, "stage": stage}) == []


def test_a_fault_that_was_not_confirmed_stands_out():
    assert words("faults", {**FAULT, "ok": False}) == [
        "kill of c (8:16) before token 3 NOT confirmed at confirm: gone"
    ]


def test_a_decision_to_stay_is_no_news():
    assert words("decisions", {**DECISION, "moved": False}) == []


def test_a_first_load_is_a_join():
    assert words("decisions", {**DECISION, "old": None}) == ["a decides to join at 2:6: a gap"]
    assert words("reloads", {**RELOAD, "old_start": None, "no_op": False})[0].startswith(
        "a joins to 0:4: 4 blocks"
    )


def test_other_kinds_tell_of_no_event():
    assert words("steps", {"t": 0.0}) == []
