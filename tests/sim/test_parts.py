"""The parts of the simulator: ways from span to span, records, populations, settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.sim.checks import CheckTimes
from swarmlab.sim.dht import Dht
from swarmlab.sim.population import (
    ARRIVING_S,
    MINUTE_S,
    Ending,
    active_target,
    churn_members,
    generator,
    sine_members,
)
from swarmlab.sim.reload import steps
from swarmlab.sim.settings import SimSettings, check
from swarmlab.types import ServerRecord, Span

KEEPS, ALL = LoadCost(10.0, 3.0), LoadCost(10.0, 3.0, keeps_overlap=False)


def plan(old, new, load):
    return [(step.blocks, step.seconds, step.serving and str(step.serving)) for step in steps(old, new, load)]


def test_going_right_drops_the_first_block_and_loads_the_next():
    assert plan(Span(0, 3), Span(2, 5), KEEPS) == [((3,), 13.0, "1:3"), ((4,), 10.0, "2:4")]


def test_going_left_drops_the_last_block_and_loads_the_one_before():
    assert plan(Span(2, 5), Span(0, 3), KEEPS) == [((1,), 13.0, "2:4"), ((0,), 10.0, "1:3")]


def test_where_nothing_is_shared_blocks_are_served_as_they_come():
    assert plan(Span(0, 2), Span(2, 4), KEEPS) == [((2,), 13.0, None), ((3,), 10.0, "2:3")]


def test_a_server_that_keeps_nothing_serves_when_all_is_loaded():
    assert plan(Span(0, 3), Span(1, 4), ALL) == [((1, 2, 3), 33.0, None)]
    assert plan(None, Span(1, 4), KEEPS) == [((1, 2, 3), 33.0, None)]


@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_a_move_loads_what_the_cost_model_says_and_serves_only_what_is_loaded(
    width, old_start, new_start, keeps
):
    old, new = Span(old_start, old_start + width), Span(new_start, new_start + width)
    load = replace(KEEPS, keeps_overlap=keeps)
    if old == new:
        return
    found = steps(old, new, load)
    assert sum(len(step.blocks) for step in found) == load.blocks_loaded(old, new)
    assert sum(step.seconds for step in found) == pytest.approx(load.reload_s(old, new))
    held = set(old)
    for step in found:
        if step.serving is not None:
            assert set(step.serving) <= held
            assert len(set(step.serving) | set(step.blocks)) <= width
        held |= set(step.blocks)
    assert set(new) <= held


def record(peer: str, expires_at_s: float, start: int = 0) -> ServerRecord:
    return ServerRecord(peer, Span(start, start + 2), 1.0, expires_at_s=expires_at_s)


def peers(dht: Dht, now_s: float) -> list[str]:
    return [found.peer_id for found in dht.view(now_s).servers]


def test_records_live_until_they_expire():
    dht = Dht(4)
    dht.store(record("a", 100.0))
    dht.store(record("b", 50.0))
    assert peers(dht, 49.9) == ["a", "b"]
    assert peers(dht, 50.0) == ["a"]
    dht.store(record("a", 200.0, start=2))
    assert [str(found.span) for found in dht.view(150.0).servers] == ["2:4"]
    dht.store(record("a", 180.0))  # an older one that comes late
    assert [str(found.span) for found in dht.view(151.0).servers] == ["2:4"]


def test_a_lapse_hides_a_server_for_its_time():
    dht = Dht(4)
    dht.store(record("a", 1000.0))
    dht.hide("a", 60.0)
    assert peers(dht, 59.0) == []
    assert peers(dht, 60.0) == ["a"]


def test_a_view_may_be_as_old_as_allowed():
    dht = Dht(4, view_age_s=10.0)
    assert peers(dht, 5.0) == []
    dht.store(record("a", 1000.0))
    assert peers(dht, 15.0) == []
    assert peers(dht, 15.1) == ["a"]


PAPER = SimSettings(duration_s=4 * 3600.0, activity_period_s=2 * 3600.0)


def test_the_number_of_active_servers_follows_the_sine():
    members = sine_members(PAPER, 0)
    counts = []
    for minute in range(1, 240):
        at_s = minute * MINUTE_S
        counts.append(sum(member.present(at_s) for member in members))
        assert counts[-1] == active_target(PAPER, at_s - MINUTE_S)
    assert (min(counts), max(counts)) == (20, 105)


def test_each_peak_has_other_servers():
    members = sine_members(PAPER, 0)
    first, second = ({m.name for m in members if m.present(at_s)} for at_s in (3600.0, 3 * 3600.0))
    assert len(first) == len(second) == 105
    assert len(first & second) < 90


def test_throughput_and_capacity_are_drawn_as_told():
    members = sine_members(PAPER, 1)
    assert {member.n_blocks for member in members} == set(range(1, 11))
    tps = [member.throughput_tps for member in members]
    assert 0 <= min(tps) < 10
    assert 90 < max(tps) <= 100
    assert sine_members(PAPER, 1) == members != sine_members(PAPER, 2)


CHURN = SimSettings(n_servers=20, active_min=20, active_max=20, duration_s=12 * 3600.0, crash_share=0.5)


def test_under_churn_every_place_is_always_taken():
    members = churn_members(CHURN, 0)
    for at_s in (ARRIVING_S, 3600.0, 6 * 3600.0, 12 * 3600.0 - 1):
        assert sum(member.present(at_s) for member in members) == 20
    assert len({member.name for member in members}) == len(members) > 40
    endings = [member.visits[0].ending for member in members]
    assert 0.3 < endings.count(Ending.CRASH) / len(endings) < 0.7
    assert churn_members(CHURN, 0) == members != churn_members(CHURN, 1)


def test_lifetimes_are_as_long_as_told():
    short = churn_members(replace(CHURN, lifetime_min_s=1800.0, lifetime_max_s=1800.0), 0)
    lives = [member.visits[0].end_s - member.visits[0].start_s for member in short]
    assert 1500 < np.mean(lives) < 2100


def test_concerns_have_streams_of_their_own():
    draws = [generator(0, *concern).random() for concern in ((0,), (1,), (2, 0), (2, 1))]
    assert len(set(draws)) == 4
    assert generator(0, 2, 1).random() == draws[3]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_blocks", 0), ("repeats", 0), ("duration_s", 0.0), ("duration_s", float("inf")), ("check_period_s", -1.0),
        ("s_per_block", -1.0), ("s_per_block", np.nan), ("capacity_max", 71), ("capacity_max", 0), ("active_max", 207),
        ("active_min", 0), ("crash_share", 1.5), ("update_period_s", 120.0), ("warm_up_s", 1e9),
        ("throughput_min_tps", 101.0), ("lifetime_min_s", 21601.0), ("throughput_median_tps", 0.0),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(field, value):
    with pytest.raises(BadInput) as refused:
        check(replace(SimSettings(), **{field: value}))
    assert refused.value.field.startswith("sim.")


def test_the_defaults_can_be():
    check(SimSettings())


def test_a_server_checks_after_a_time_drawn_evenly_up_to_twice_the_mean():
    times, plain = CheckTimes(SimSettings(check_period_s=60.0), generator(1, 2)), generator(1, 2)
    assert [times.first_s(), times.next_s(), times.next_s()] == [plain.uniform(0, 120) for _ in range(3)]
    exact = CheckTimes(SimSettings(check_period_s=60.0, check_evenly=False), generator(1, 2))
    assert 0 <= exact.first_s() <= 60
    assert exact.next_s() == 60


def test_after_moves_that_were_not_made_a_server_waits_longer_and_longer():
    times = CheckTimes(SimSettings(check_period_s=60.0), generator(1, 2))
    assert times.after_setbacks_s() is None
    times.setbacks = 1
    once = times.after_setbacks_s()
    times.setbacks = 2
    assert 60 < (once or 0) < (times.after_setbacks_s() or 0)
