"""Faults of a scenario file: what is refused, what is due when, and whom a role means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput
from swarmlab.faults.schedule import Fault, FaultSpec, Role, due, parse_faults, resolve
from swarmlab.types import Span

SERVERS = ["a", "b", "c"]


def parse(*entries):
    return parse_faults(entries, SERVERS, n_tokens=10)


def test_entries_become_specs_in_order():
    assert parse(
        {"fault": "kill", "target": "last", "before_token": 0},
        {"fault": "stop", "target": "b", "before_token": 9, "at_span": "first", "request": 2},
    ) == (FaultSpec(Fault.KILL, "last", 0), FaultSpec(Fault.STOP, "b", 9, "first", 2))


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"fault": "explode", "target": "a", "before_token": 1}, "faults[0].fault"),
        ({"target": "a", "before_token": 1}, "faults[0].fault"),
        ({"fault": "kill", "target": "z", "before_token": 1}, "faults[0].target"),
        ({"fault": "kill", "before_token": 1}, "faults[0].target"),
        ({"fault": "kill", "target": "a"}, "faults[0].before_token"),
        ({"fault": "kill", "target": "a", "before_token": 1, "at_span": "a"}, "faults[0].at_span"),
        ({"fault": "kill", "target": "a", "before_token": 1, "request": 2}, "faults[0].request"),
        (
            {"fault": "kill", "target": "a", "before_token": 1, "at_span": "last", "request": 0},
            "faults[0].request",
        ),
        ({"fault": "kill", "target": "a", "before_token": 10}, "faults[0].before_token"),
        ({"fault": "kill", "target": "a", "before_token": -1}, "faults[0].before_token"),
        ({"fault": "kill", "target": "a", "before_token": 1.5}, "faults[0].before_token"),
        ({"fault": "kill", "target": "a", "before_token": True}, "faults[0].before_token"),
        ({"fault": "kill", "target": "a", "before_token": 1, "after": 3}, "faults[0].after"),
        ("kill a", "faults[0]"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(entry, field):
    with pytest.raises(BadInput) as refused:
        parse(entry)
    assert refused.value.field == field


def test_the_second_entry_is_named_by_its_index():
    with pytest.raises(BadInput, match=r"faults\[1\]\.target"):
        parse({"fault": "kill", "target": "a", "before_token": 1}, {"fault": "kill", "target": "?"})


def test_due_before_a_token_or_before_a_span_is_asked():
    faults = kill, stop, late = parse(
        {"fault": "kill", "target": "first", "before_token": 3},
        {"fault": "stop", "target": "a", "before_token": 3, "at_span": "last", "request": 2},
        {"fault": "restart", "target": "a", "before_token": 3},
    )
    assert due(faults, token=3) == (kill, late)
    assert due(faults, token=4) == ()
    assert due(faults, token=3, at_span="last") == ()
    assert due(faults, token=3, at_span="last", request=2) == (stop,)


@pytest.mark.parametrize(
    ("target", "chain", "server"),
    [
        ("first", "abc", "a"),
        ("middle", "abc", "b"),
        ("middle", "abcd", "c"),
        ("last", "abc", "c"),
        ("last", "a", "a"),
        ("c", "ab", "c"),
    ],
)
def test_roles_are_places_in_the_chain(target, chain, server):
    assert resolve(target, list(chain)) == server


@pytest.mark.parametrize(("target", "chain"), [("middle", "ab"), ("first", ""), ("last", "")])
def test_a_chain_without_such_a_place_is_an_error(target, chain):
    with pytest.raises(ValueError, match=target):
        resolve(target, list(chain))


@given(
    st.lists(st.text(min_size=1), min_size=3, unique=True).filter(lambda chain: not set(chain) & set(Role))
)
def test_the_middle_is_neither_end(chain):
    assert resolve("middle", chain) not in (chain[0], chain[-1])


def test_what_only_some_faults_need_is_asked_of_them_and_of_no_others():
    pause = {"fault": "pause", "target": "a", "before_token": 1, "seconds": 0.4}
    move = {"fault": "move", "target": "a", "before_token": 1, "to": [0, 4]}
    assert parse(pause)[0].seconds == 0.4
    assert parse(move)[0].to == Span(0, 4)
    for entry, field in [
        ({**pause, "seconds": 0}, "faults[0].seconds"),
        ({"fault": "pause", "target": "a", "before_token": 1}, "faults[0].seconds"),
        ({"fault": "kill", "target": "a", "before_token": 1, "seconds": 1}, "faults[0].seconds"),
        ({**move, "to": [4, 4]}, "faults[0].to"),
        ({**move, "to": 4}, "faults[0].to"),
        ({"fault": "kill", "target": "a", "before_token": 1, "to": [0, 4]}, "faults[0].to"),
        ({"fault": "kill", "target": "a", "before_token": 1, "after_s": -1}, "faults[0].after_s"),
    ]:
        with pytest.raises(BadInput) as refused:
            parse(entry)
        assert refused.value.field == field
