"""How time and memory grow with the size of a swarm."""

from __future__ import annotations

import numpy as np
import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.plots.scale import scale_figure
from swarmlab.analysis.scale import check, measure

INFO = {"scenarios": ["n=100", "n=1000"], "arms": ["swarmlab"], "model": {"id": "m"}, "world": "simulated"}


def row(servers, cpu_s, **more):
    return {
        "scenario": f"n={servers}", "arm": "swarmlab", "repeat": 0, "servers": servers, "simulated_s": 3600.0,
        "wall_s": 2 * cpu_s, "cpu_s": cpu_s, "events": 1000, "checks": 10, "moves": 3, "rss_bytes": 300 * 2**20,
        "idle_rss_bytes": 200 * 2**20, "swarm_tps_over_mean": 0.5, **more,
    }  # fmt: skip


def test_metrics_by_hand():
    growth, scenarios = measure(
        [row(100, 1.0), row(1000, 10.0), row(1000, 30.0, repeat=1), row(1000, 20.0, repeat=2)]
    )
    cell = scenarios["n=1000"]["swarmlab"]
    assert (cell["repeats"], cell["cpu_s"], cell["wall_s"]) == (3, 20.0, 40.0)
    assert (cell["cpu_s_per_day"], cell["wall_s_per_day"]) == (480.0, 960.0)
    assert cell["events_per_cpu_s"] == 50.0
    assert (cell["rss_mib"], cell["used_mib"]) == (300.0, 100.0)
    assert growth["swarmlab"]["cpu_growth_exponent"] == pytest.approx(1.301, abs=0.001)  # a factor 20 over 10
    assert growth["swarmlab"]["memory_growth_exponent"] == pytest.approx(0.0, abs=1e-9)
    assert growth["swarmlab"]["largest"] == 1000


def test_of_one_size_nothing_is_said_about_growth():
    growth, _ = measure([row(100, 1.0)])
    assert growth["swarmlab"]["cpu_growth_exponent"] is None


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(100, 1.0), row(1000, 10.0)], Verdict.HOLDS),
        ([row(100, 1.0), row(1000, 100.0)], Verdict.FAILS),  # grows with the square
        ([row(100, 1.0)], Verdict.UNKNOWN),
    ],
)
def test_growth_is_judged_and_a_missing_size_is_unknown(rows, verdict):
    wanted = {"swarmlab": {"cpu_growth_exponent": {"max": 1.5}}}
    cell = {"n=100": {"arms": {"swarmlab": {"cpu_s": {"max": 5}}}}}
    growth, scenarios = measure(rows)
    assert conclude(list(check(growth, scenarios, {"arms": wanted, "scenarios": cell}, INFO, 1))) is verdict


@pytest.mark.parametrize(
    "size", [200, 1000]
)  # of the first one nothing is expected, of the other its seconds
def test_one_size_is_unknown_and_the_reason_says_what_is_missing(size):
    expected = {
        "arms": {"swarmlab": {"cpu_growth_exponent": {"max": 1.5}}, "petals": {"cpu_growth_exponent": {"max": 2}}},
        "scenarios": {"n=1000": {"arms": {"swarmlab": {"cpu_s": {"max": 5}}}}},
    }  # fmt: skip
    growth, scenarios = measure([row(size, 1.0)])
    found = list(check(growth, scenarios, expected, {**INFO, "scenarios": [f"n={size}"]}, 1))
    assert conclude(found) is Verdict.UNKNOWN
    (reason,) = (str(one) for one in found if one.verdict is not Verdict.HOLDS)
    assert reason.startswith("unknown: swarmlab / cpu_growth_exponent: an exponent needs at least two sizes")
    assert f"n={size}" in reason


def test_the_figure_shows_each_size_as_a_day():
    arms, scenarios = measure([row(100, 1.0), row(1000, 10.0)])
    left, right = scale_figure({"arms": arms, "scenarios": scenarios}, INFO).axes
    line = next(line for line in left.get_lines() if np.size(line.get_xdata()) == 2)
    assert np.array_equal(line.get_xdata(), [100, 1000])
    assert np.array_equal(line.get_ydata(), [24.0, 240.0])
    assert left.get_xscale() == left.get_yscale() == right.get_xscale() == "log"
    assert right.get_ylim()[0] == 0.0, "memory differs by less than a factor of two"


def test_the_figure_names_the_goals_and_how_often_was_measured():
    arms, scenarios = measure([row(100, 1.0), row(1000, 10.0), row(1000, 12.0, repeat=1)])
    figure = scale_figure({"arms": arms, "scenarios": scenarios}, INFO)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert "goals: 60 s and 900 s" in {text.get_text() for text in legend.get_texts()}
    assert not figure.axes[0].texts, "words beside the goals lie on the curves or run over the frame"
    assert "n = 1 or 2" in figure.texts[-1].get_text()
