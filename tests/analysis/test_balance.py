"""What is counted of a simulated run, on rows made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from swarmlab.analysis.balance import ORACLE, by_repeat, measure, oscillations, summed_up
from swarmlab.analysis.balance_checks import check_expected, check_samples
from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.plots.balance import balance_figure

WHERE = {"scenario": "reload", "repeat": 0}


def sample(arm, t, tps, n_active=2, **more):
    return {
        **WHERE,
        "arm": arm,
        "t": t,
        "swarm_tps": tps,
        "n_active": n_active,
        "capacity_block_tps": 20.0,
        **more,
    }


def reload(t, server, old, new, *, loaded, redundant=0, lost=0.0, tps=1.0):
    old_start, old_end = old or (None, None)
    return {
        **WHERE, "arm": "petals", "t": t, "server": server, "old_start": old_start, "old_end": old_end,
        "new_start": new[0], "new_end": new[1], "loaded": loaded, "redundant": redundant, "no_op": old == new,
        "out_of_service_s": 30.0, "lost_block_s": lost, "throughput_tps": tps,
    }  # fmt: skip


@pytest.fixture
def history():
    return {
        "balance": [
            *(sample("optimal", t, 9.0, optimal_tps=10.0, loaded_tps=8.0) for t in (0.0, 60.0, 120.0)),
            *(sample("petals", t, tps) for t, tps in ((0.0, 1.0), (60.0, 5.0), (120.0, 0.0))),
        ],
        "reloads": [
            reload(10.0, "a", None, (0, 2), loaded=2),  # joins: no move
            reload(20.0, "a", (0, 2), (0, 2), loaded=2, redundant=2, lost=60.0, tps=2.0),  # for nothing
            reload(30.0, "a", (0, 2), (1, 3), loaded=2, redundant=1, lost=60.0, tps=2.0),  # one of two
            reload(40.0, "a", (1, 3), (0, 2), loaded=1, lost=30.0, tps=2.0),  # and back
        ],
        "decisions": [],
    }


def test_every_metric_by_hand(history):
    found = summed_up(measure(history, warm_up_s=60.0, sample_every_s=60.0))["reload"]["petals"]
    alone = {name: value for name, value in found.items() if value is None}
    assert {name.rsplit("_", 1)[0] for name in alone} == {
        "swarm_tps_over_optimal", "swarm_tps_over", "swarm_tps_over_oracle", "swarmlab_tps_over",
        "swarmlab_tps_over_this",
    }, "no interval from one population, and nobody to compare with"  # fmt: skip
    assert {name: value for name, value in found.items() if name not in alone} == {
        "repeats": 1,
        "swarm_tps_mean": 2.5,
        "swarm_tps_over_optimal_mean": 0.25,
        "swarm_tps_over_optimal_min": 0.25,
        "swarm_tps_over_best_found_mean": pytest.approx(2.5 / 9),
        "swarm_tps_over_loaded_mean": 2.5 / 8,
        "zero_throughput_share": 0.5,
        "moves": 3.0,
        "noop_reloads": 1.0,
        "redundant_loads": 3.0,
        "blocks_loaded": 5.0,
        "oscillations": 1.0,
        "out_of_service_s": 90.0,
        "lost_block_seconds": 150.0,
        "capacity_lost_share": 300.0 / 3600.0,
    }


def test_populations_are_averaged_and_the_worst_is_kept(history):
    again = [{**row, "repeat": 1, "swarm_tps": row["swarm_tps"] * 2} for row in history["balance"]]
    for row in again:
        row["swarm_tps"] = min(row["swarm_tps"], 10.0)
    found = summed_up(
        measure({**history, "balance": history["balance"] + again}, warm_up_s=60.0, sample_every_s=60.0)
    )
    petals = found["reload"]["petals"]
    assert (petals["repeats"], petals["moves"]) == (2, 1.5)
    assert petals["swarm_tps_over_optimal_mean"] == pytest.approx(0.375)
    assert petals["swarm_tps_over_optimal_min"] == 0.25


def test_arms_are_compared_population_by_population():
    def rows(arm, repeat, tps):
        return [{**sample(arm, t, tps), "repeat": repeat} for t in (60.0, 120.0)]

    rates = {"oracle": (4.0, 8.0), "swarmlab": (3.0, 7.0), "petals": (1.0, 4.0)}
    balance = [
        row for arm, of in rates.items() for repeat, tps in enumerate(of) for row in rows(arm, repeat, tps)
    ]
    found = summed_up(measure({"balance": balance}, warm_up_s=0.0, sample_every_s=60.0))["reload"]
    assert found["swarmlab"]["swarm_tps_over_oracle"] == pytest.approx(10 / 12)
    assert found["swarmlab"]["swarm_tps_over_oracle_low"] == pytest.approx(3 / 4)
    assert found["swarmlab"]["swarm_tps_over_oracle_high"] == pytest.approx(7 / 8)
    assert found["petals"]["swarmlab_tps_over_this"] == pytest.approx(10 / 5)
    assert found["petals"]["swarmlab_tps_over_this_low"] == pytest.approx(7 / 4)


def test_what_each_population_gave_stands_apart_in_their_order(history):
    again = [{**row, "repeat": 1, "swarm_tps": 2.0} for row in history["balance"]]
    several = {**history, "balance": again + history["balance"]}
    found = by_repeat(measure(several, warm_up_s=60.0, sample_every_s=60.0))["reload"]["petals"]
    summed = summed_up(measure(several, warm_up_s=60.0, sample_every_s=60.0))["reload"]["petals"]
    assert found["moves"] == [3, 0]
    for metric in ("moves", "swarm_tps_mean", "swarm_tps_over_optimal_mean"):
        assert sum(found[metric]) / 2 == pytest.approx(summed[metric])
    assert by_repeat(measure(history, warm_up_s=60.0, sample_every_s=60.0)) == {"reload": {}}


def test_coming_back_after_an_hour_is_no_oscillation():
    there, back = reload(0.0, "a", (0, 2), (1, 3), loaded=1), reload(3600.1, "a", (1, 3), (0, 2), loaded=1)
    assert oscillations([there, back]) == 0
    assert oscillations([there, {**back, "t": 3600.0}]) == 1
    assert oscillations([there, {**back, "t": 60.0, "server": "b"}]) == 0


def test_reloading_the_same_blocks_again_and_again_is_no_oscillation():
    assert (
        oscillations([reload(t, "a", (0, 2), (0, 2), loaded=2, redundant=2) for t in (0.0, 60.0, 120.0)]) == 0
    )


PLAN = {"scenarios": ["reload"], "arms": ["petals"], "repeats": 1, "samples": 3}


def judged(history, expected=None, **plan):
    wanted = expected or {"scenarios": {"reload": {"arms": {"petals": {"moves": 3}}}}}
    measured = summed_up(measure(history, warm_up_s=60.0, sample_every_s=60.0))
    return conclude(
        [*check_samples(history, **{**PLAN, **plan}), *check_expected(measured, wanted, ["petals"])]
    )


def test_a_run_that_shows_what_it_should_holds(history):
    assert judged(history) is Verdict.HOLDS


def test_a_run_that_shows_something_else_fails(history):
    assert (
        judged(history, {"scenarios": {"reload": {"arms": {"petals": {"moves": {"max": 2}}}}}})
        is Verdict.FAILS
    )


@pytest.mark.parametrize(
    ("order", "verdict"), [(("optimal", "petals"), "holds"), (("petals", "optimal"), "fails")]
)
def test_an_order_of_arms_is_judged(history, order, verdict):
    expected = {"scenarios": {"reload": {"orders": {"swarm_tps_mean": [list(order)]}}}}
    assert judged(history, expected) == verdict


@pytest.mark.parametrize("what", ["a sample", "an arm", "other servers", "a population", "above the bound"])
def test_a_record_that_cannot_support_it_is_unknown(history, what):
    plan = {}
    if what == "a sample":
        del history["balance"][-1]
    elif what == "an arm":
        history["balance"] = history["balance"][:3]
    elif what == "other servers":
        history["balance"][-1]["n_active"] = 3
    elif what == "a population":
        plan["repeats"] = 2
    else:
        history["balance"][-1]["swarm_tps"] = 10.1
    assert judged(history, **plan) is Verdict.UNKNOWN


def test_a_metric_that_nothing_supports_is_unknown(history):
    for row in history["balance"]:
        row["optimal_tps"] = 0.0
        row["swarm_tps"] = 0.0
    expected = {"scenarios": {"reload": {"arms": {"petals": {"swarm_tps_over_optimal_mean": {"min": 0.1}}}}}}
    assert judged(history, expected) is Verdict.UNKNOWN


def test_the_figure_shows_each_arm_and_the_active_servers(history):
    for row in history["balance"]:
        row["n_active"] = 3 if row["t"] == max(one["t"] for one in history["balance"]) else 2
    summary = summed_up(measure(history, warm_up_s=60.0, sample_every_s=60.0))
    figure = balance_figure(history, summary, {"seed": 0, "id": "x", "world": "simulated"})
    top, active, table = figure.axes
    bound, petals = top.get_lines()
    assert ydata(bound) == [10.0] * 3, "the bound, not what was found"
    assert ydata(petals) == [1.0, 5.0, 0.0]
    assert ydata(active.get_lines()[0]) == [2, 2, 3]
    assert {"petals", "25.0%", "50.0%", "3", "100%"} <= {text.get_text() for text in table.texts}
    low, high = top.get_ylim()
    assert low < 0 < high, "a line at 0 is not hidden by the axis"


def test_what_does_not_change_and_what_was_not_run_is_not_drawn(history):
    summary = summed_up(measure(history, warm_up_s=60.0, sample_every_s=60.0))
    figure = balance_figure(history, summary, {"seed": 0, "id": "x", "world": "simulated"})
    top, table = figure.axes
    assert top.get_title(loc="left").startswith("2 servers, "), "instead of the curve of active servers"
    assert "over\noracle" not in {text.get_text() for text in table.texts}
    assert "oracle" not in figure.texts[-1].get_text()
    for name in history:
        history[name] += [{**row, "arm": ORACLE} for row in history[name] if row["arm"] == "petals"]
    summary = summed_up(measure(history, warm_up_s=60.0, sample_every_s=60.0))
    figure = balance_figure(history, summary, {"seed": 0, "id": "x", "world": "simulated"})
    assert "over\noracle" in {text.get_text() for text in figure.axes[-1].texts}
    assert "oracle" in figure.texts[-1].get_text()


def test_swarms_of_different_sizes_have_scales_of_their_own(history):
    def rows(scenario, n_active):
        return [{**row, "scenario": scenario, "n_active": n_active} for row in history["balance"]]

    sizes = {"few": 20, "few_lapses": 20, "complete": 60, "lapses": 60}
    balance = [row for scenario, size in sizes.items() for row in rows(scenario, size)]
    found = {"balance": balance}
    summary = summed_up(measure(found, warm_up_s=60.0, sample_every_s=60.0))
    figure = balance_figure(found, summary, {"seed": 0, "id": "x", "world": "simulated"})
    few, few_lapses, complete, lapses = figure.axes[::2]
    shared = few.get_shared_y_axes()
    assert shared.joined(few, few_lapses)
    assert complete.get_shared_y_axes().joined(complete, lapses)
    assert not shared.joined(few, complete)
    assert few.get_position().y0 > complete.get_position().y0, "two rows of two"
    titles = [axes.get_title(loc="left") for axes in (few, few_lapses, complete, lapses)]
    assert [title.partition(",")[0] for title in titles] == [
        "20 servers",
        "20 servers",
        "60 servers",
        "60 servers",
    ]


def ydata(line):
    return np.asarray(line.get_ydata()).tolist()


def test_a_cell_of_a_sweep_is_titled_by_its_settings(history):
    found = {"balance": [{**row, "scenario": "swept"} for row in history["balance"]]}
    summary = summed_up(measure(found, warm_up_s=60.0, sample_every_s=60.0))
    overrides = ["+exp=churn", "sim.lifetime_min_s=3600", "sim.s_per_block=27"]
    info = {"seed": 0, "id": "x", "world": "simulated", "overrides": overrides}
    figure = balance_figure(found, summary, info)
    assert figure.axes[0].get_title(loc="left") == "2 servers, 1 h lifetimes, 27 s per block"


@pytest.mark.parametrize(
    ("arms", "verdict"), [(["petals"], Verdict.HOLDS), (["petals", "oracle"], Verdict.UNKNOWN)]
)
def test_a_ratio_to_an_oracle_is_only_missed_where_one_was_run(arms, verdict):
    wanted = {"scenarios": {"a": {"arms": {"petals": {"moves": 1, "tps_over_oracle": {"min": 0.9}}}}}}
    found = list(check_expected({"a": {"petals": {"moves": 1}}}, wanted, arms))
    assert conclude(found) is verdict
