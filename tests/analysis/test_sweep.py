"""The figure of a multirun: a panel per value of one setting, each arm with the interval that its run states."""

from __future__ import annotations

import pytest

from swarmlab.analysis.plots.sweep import is_sweep
from swarmlab.judges.simulated import draw_repeats


def run(life_s: int, load_s: int, share: float, *, seed: int = 0):
    overrides = ["+exp=churn", f"sim.lifetime_min_s={life_s}", f"sim.s_per_block={load_s}", f"seed={seed}"]
    info = {
        "id": f"{life_s}-{load_s}", "exp": "churn", "world": "simulated", "seed": seed, "overrides": overrides,
        "scenarios": ["swept"], "model": {"id": "simulated, 80 blocks"}, "host": {"cores": 2, "cpu": "a CPU"},
    }  # fmt: skip
    arms = {
        arm: {
            "repeats": 5,
            "swarm_tps_over_optimal_mean": share * part,
            "swarm_tps_over_optimal_low": share * part - 0.05,
            "swarm_tps_over_optimal_high": share * part + 0.05,
        }
        for arm, part in {"optimal": 1.0, "petals": 0.5, "swarmlab": 0.8}.items()
    }
    return info, {"scenarios": {"swept": arms}, "arms": {}}


RUNS = [run(14400, 27, 0.7), run(3600, 27, 0.5), run(3600, 3, 0.6), run(14400, 3, 0.9)]


def test_runs_that_differ_in_a_setting_are_a_sweep_and_those_of_other_seeds_are_not():
    assert is_sweep(RUNS)
    assert not is_sweep([run(3600, 27, 0.5), run(3600, 27, 0.6, seed=1)])


def test_each_panel_has_the_shares_of_one_lifetime_over_load_times():
    figure = draw_repeats(RUNS)[""]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "mean lifetime 1 h",
        "mean lifetime 4 h",
    ]
    for axes, shares in zip(figure.axes, ((0.6, 0.5), (0.9, 0.7)), strict=True):
        assert [label.get_text() for label in axes.get_xticklabels()] == ["3", "27"]
        lines = {line.get_label(): line.get_ydata() for line in axes.lines}
        assert lines["swarmlab"] == pytest.approx([0.8 * share for share in shares])
        assert lines["petals"] == pytest.approx([0.5 * share for share in shares])
        assert "upper bound" not in lines


def test_an_arm_at_nothing_is_seen_above_the_axis():
    assert all(axes.get_ylim()[0] < 0 for axes in draw_repeats(RUNS)[""].axes)


def test_a_cell_that_is_missing_leaves_a_gap():
    figure = draw_repeats(RUNS[:3])[""]
    line = next(line for line in figure.axes[1].lines if line.get_label() == "swarmlab")
    assert line.get_ydata() == pytest.approx([0.8 * 0.7])
