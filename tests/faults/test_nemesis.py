"""The random schedule: never the last live holder unless asked, always the same for a seed, at the wanted rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.faults.nemesis import NemesisSettings, Stream, choose, expendable, plan
from swarmlab.faults.schedule import Fault
from swarmlab.types import Span

SETTINGS = NemesisSettings(
    failures_per_minute=10, slowdowns_per_minute=20, stop_share=0.4, away_s=(2, 8), pause_s=(0.05, 0.5)
)
seeds, streams, numbers = st.integers(0, 2**32 - 1), st.sampled_from(Stream), st.integers(0, 10_000)


@st.composite
def swarms(draw):
    """Servers by name, and some of them away; blocks may have any number of holders."""
    n_blocks = draw(st.integers(1, 12))
    spans = {}
    for index in range(draw(st.integers(1, 9))):
        start = draw(st.integers(0, n_blocks - 1))
        spans[f"s{index}"] = Span(start, draw(st.integers(start + 1, n_blocks)))
    return spans, draw(st.sets(st.sampled_from(sorted(spans))))


def held(spans, away):
    return {block for name, span in spans.items() if name not in away for block in span}


@given(swarms(), seeds, streams, numbers)
def test_never_the_last_live_holder_of_a_block(swarm, seed, stream, number):
    spans, away = swarm
    target = choose(plan(SETTINGS, seed, stream, number), spans, away, allow_outage=False)
    if target is not None:
        assert target not in away
        assert held(spans, away | {target}) == held(spans, away)


@given(swarms(), seeds)
def test_no_series_of_faults_that_nobody_undoes_makes_a_hole(swarm, seed):
    spans, away = swarm
    before, away = held(spans, away), set(away)
    for number in range(20):
        target = choose(plan(SETTINGS, seed, Stream.FAILURES, number), spans, away, allow_outage=False)
        if target is None:
            assert expendable(spans, away) == []
            break
        away.add(target)
        assert held(spans, away) == before
    else:
        pytest.fail("the series took more servers than there are")


@given(swarms())
def test_whoever_is_spared_is_the_last_holder_of_something(swarm):
    spans, away = swarm
    for name in set(spans) - set(away) - set(expendable(spans, away)):
        assert held(spans, away | {name}) < held(spans, away)


@given(swarms(), seeds, numbers)
def test_asked_for_an_outage_it_may_take_anybody_who_is_there(swarm, seed, number):
    spans, away = swarm
    target = choose(plan(SETTINGS, seed, Stream.FAILURES, number), spans, away, allow_outage=True)
    assert (target is None) == (set(spans) == set(away))
    assert target not in away


def test_with_outages_every_server_is_taken_some_time():
    spans = {"a": Span(0, 2), "b": Span(0, 1), "c": Span(1, 2)}
    taken = {
        choose(plan(SETTINGS, 0, Stream.FAILURES, n), spans, set(), allow_outage=True) for n in range(50)
    }
    assert taken == {"a", "b", "c"}


@given(seeds, streams, numbers)
def test_a_fault_depends_on_seed_stream_and_number_only(seed, stream, number):
    assert plan(SETTINGS, seed, stream, number) == plan(SETTINGS, seed, stream, number)


@given(swarms(), seeds, numbers)
def test_an_aimed_fault_takes_one_in_use_if_it_may(swarm, seed, number):
    spans, away = swarm
    aimed = NemesisSettings(**{**vars(SETTINGS), "aimed_share": 1.0})
    in_use = set(list(spans)[::2])
    target = choose(
        plan(aimed, seed, Stream.FAILURES, number), spans, away, allow_outage=False, in_use=in_use
    )
    able = set(expendable(spans, away))
    assert (target is None) == (not able)
    assert target is None or target in (able & in_use or able)


def test_other_seeds_and_streams_give_other_faults():
    plans = {plan(SETTINGS, seed, stream, n) for seed in (0, 1) for stream in Stream for n in range(5)}
    assert len(plans) == 20


@given(seeds, numbers)
def test_times_lie_within_their_bounds(seed, number):
    failure = plan(SETTINGS, seed, Stream.FAILURES, number)
    slowdown = plan(SETTINGS, seed, Stream.SLOWDOWNS, number)
    assert failure.fault in (Fault.KILL, Fault.STOP)
    assert (3 <= failure.gap_s <= 9, 2 <= failure.seconds <= 8) == (True, True)
    assert slowdown.fault is Fault.PAUSE
    assert (1.5 <= slowdown.gap_s <= 4.5, 0.05 <= slowdown.seconds <= 0.5) == (True, True)


@pytest.mark.parametrize("seed", range(5))
def test_three_minutes_see_more_than_twenty_failures_of_both_kinds(seed):
    plans, passed_s = [], 0.0
    while passed_s < 180:
        plans.append(plan(SETTINGS, seed, Stream.FAILURES, len(plans)))
        passed_s += plans[-1].gap_s
    assert 25 <= len(plans) <= 36
    assert {one.fault for one in plans} == {Fault.KILL, Fault.STOP}
