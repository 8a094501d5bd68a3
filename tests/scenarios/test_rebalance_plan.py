"""The swarm of +exp=rebalance on paper: who begins where, who would move, and how each arm starts its servers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from swarmlab.placement.policy import Server
from swarmlab.placement.registry import POLICIES
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.rebalance_plan import Starter
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.types import ServerRecord, Span, SwarmView

CHOOSING = ("petals", "recheck", "appendix_d", "swarmlab")
N_BLOCKS = 24
SEEDS = range(5)


def record(place, span=None):
    return ServerRecord(place.name, span or place.span, place.tps)


def view(places):
    return SwarmView(N_BLOCKS, tuple(record(place) for place in places))


def decide(arm, seen, place, seed=0):
    server = Server(place.name, place.span.length, place.tps, place.span)
    return POLICIES[arm]().reconsider(seen, server, None, np.random.default_rng(seed))


@pytest.mark.parametrize("arm", CHOOSING)
@pytest.mark.parametrize("places", [plan.SWARM, plan.SLOW_SWARM], ids=["swarm", "slow"])
def test_in_their_order_all_choose_the_span_that_the_plan_says(arm, places):
    for number, place in enumerate(places):
        joining = Server(place.name, place.span.length, place.tps)
        chosen = POLICIES[arm]().choose(view(places[:number]), joining, np.random.default_rng(0))
        assert not place.free or chosen.target == place.span


@pytest.mark.parametrize("arm", CHOOSING)
@pytest.mark.parametrize("places", [plan.SWARM, plan.SLOW_SWARM], ids=["swarm", "slow"])
def test_nobody_moves_before_anything_happens(arm, places):
    for count in range(1, len(places) + 1):
        seen = view(places[:count])
        free = [place for place in places[:count] if place.free]
        assert not any(decide(arm, seen, place, seed).moved for place in free for seed in SEEDS)


def test_while_records_are_lost_everybody_would_move_and_chooses_its_old_place_when_they_are_back():
    whole = view(plan.SWARM)
    for place in plan.SWARM:
        if place.free:
            assert decide("petals", whole.without([plan.LOST]), place).moved
            joining = Server(place.name, place.span.length, place.tps)
            again = POLICIES["petals"]().choose(
                whole.without([place.name]), joining, np.random.default_rng(0)
            )
            assert again.target == place.span


def test_the_gap_is_filled_by_a_server_that_keeps_more_than_it_loads():
    left = [place for place in plan.SWARM if place.name not in plan.KILLED]
    assert view(left).uncovered()
    moving = {place.name: decide("petals", view(left), place).target for place in left if place.free}
    assert moving["b1"] == moving["b2"] == Span(14, 24)
    assert moving["b1"].overlap(Span(10, 20)) == 6


@pytest.mark.parametrize("arm", ["petals", "swarmlab"])
def test_on_the_slow_disk_20_blocks_have_to_move_by_two(arm):
    left = [place for place in plan.SLOW_SWARM if place.name != plan.SLOW_KILLED]
    (mover,) = [place for place in left if place.free]
    decision = decide(arm, view(left), mover)
    assert Span(2, 22) in (decision.target, decision.intent and decision.intent.span)


def starter(arm):
    return Starter(arm, RebalanceSettings(), Path("/folder"), 0.5, seed=3)


def words(spec):
    return dict(zip(spec.argv[::2], spec.argv[1::2], strict=True)), dict(spec.options)


@pytest.mark.parametrize("arm", plan.ARMS)
def test_every_arm_has_the_same_clock_and_the_same_disk(arm):
    for number, place in enumerate(plan.SWARM):
        argv, options = words(starter(arm).spec(place, number))
        assert argv["--mean_balance_check_period"] == "4.0"
        assert options["mean_choice_delay_s"] == str(5 / 15)
        assert (options["read_delay_s"], options["slow_when"]) == ("0.5", "/folder/disk_is_slow")
        assert options["seed"] == str(3000 + number)


def test_only_the_pinned_arm_pins_and_only_the_narrow_server_is_pinned_everywhere():
    spans = {arm: [starter(arm).spec(place, 0).span for place in plan.SWARM] for arm in plan.ARMS}
    assert spans["pinned"] == [place.span for place in plan.SWARM]
    for arm in set(plan.ARMS) - {"pinned"}:
        assert [span for span in spans[arm] if span] == [Span(20, 24)]
    late = starter("pinned").spec(plan.WIDE, 6, joins_late=True)
    assert (late.span, late.n_blocks) == (None, 16)
    assert words(late)[0]["--balance_quality"] == "0.0"


def test_the_original_is_the_original_and_policies_are_told_their_waits():
    free = plan.SWARM[0]
    kinds = {arm: starter(arm).spec(free, 0).kind for arm in plan.ARMS}
    assert kinds == {
        "petals": "policy_server:original", "pinned": "policy_server:original",
        "recheck": "policy_server:server", "appendix_d": "policy_server:server", "swarmlab": "policy_server:ours",
    }  # fmt: skip
    _, options = words(starter("swarmlab").spec(free, 0))
    settings = json.loads(options["policy_settings"])
    assert (settings["grace_s"], settings["visible_after_s"]) == (6.0, 4.0)
    assert settings["price"] == {"horizon_s": 40.0}
    recheck = json.loads(words(starter("recheck").spec(free, 0))[1]["policy_settings"])
    assert recheck["time_scale"] == 15.0
    assert starter("swarmlab").spec(plan.SWARM[2], 0).kind == "policy_server:original"


def test_a_larger_model_has_the_same_swarm_in_larger():
    assert plan.WIDE.scaled(48).span == Span(0, 32)
