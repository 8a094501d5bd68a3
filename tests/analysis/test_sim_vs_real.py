from __future__ import annotations

import pytest

from swarmlab.analysis import sim_vs_real
from swarmlab.analysis.checks import Verdict
from swarmlab.analysis.plots.sim_vs_real import agreement_figure
from swarmlab.analysis.rebalance_tables import agreement_table
from tests.analysis.rebalance_rows import INFO, Story, both_arms

WANTED = {"moves": {"absolute": 1}, "out_of_service_s": {"absolute": 2.0, "relative": 0.25}}


def worlds(arm="petals", *, real=(2, 13.0), simulated=((2, 12.0), (3, 16.0))):
    """One real swarm and simulations, each with so many moves that take so long together."""
    story = Story()
    for repeat, (world, (moves, seconds)) in enumerate(
        [("real", real), *(("simulated", one) for one in simulated)]
    ):
        for second in range(5):
            story.add("balance", float(second), arm, world, repeat=max(0, repeat - 1), swarm_tps=100.0)
        for _ in range(moves):
            story.add(
                "reloads", 3.0, arm, world, repeat=max(0, repeat - 1), old_start=0, old_end=10, new_start=4,
                new_end=14, loaded=10, no_op=False, lost_block_s=10 * seconds / moves, out_of_service_s=9e9,
                completed=True,
            )  # fmt: skip
    return story.rows


def verdicts(rows):
    arms = sim_vs_real.by_arm(rows)
    return {
        finding.name: finding.verdict
        for finding in sim_vs_real.check(arms, WANTED, {"arms": ["petals"]})
        if not finding.assumption
    }


def test_a_timeline_starts_with_the_first_scenario():
    story = both_arms()
    happened, zero_s = sim_vs_real.timeline(story.rows, "swarmlab")
    assert zero_s == 90.0
    assert happened.end_s == 90.0
    assert happened.lost == ("narrow", 5.0)
    assert dict(happened.killed) == {"narrow": 35.0, "a2": 35.0}
    assert dict(happened.joined) == {"wide": 65.0}


def test_half_a_timeline_is_none():
    story = both_arms()
    del story.rows["phases"][-1]
    with pytest.raises(ValueError, match="no whole timeline"):
        sim_vs_real.timeline(story.rows, "swarmlab")
    with pytest.raises(ValueError, match="recheck"):
        sim_vs_real.timeline(both_arms().rows, "recheck")


def test_seconds_of_loading_are_measured_and_petals_own_wait_is_not_counted_twice():
    seconds = sim_vs_real.load_seconds(both_arms().rows, choice_delay_s=0.4)
    assert seconds.s_per_block == pytest.approx(0.5)
    assert seconds.s_per_full_move == pytest.approx(6.5 - 5.0 - 0.4)
    assert seconds.s_per_kept_move == pytest.approx(max(0.0, 2.5 - 5.0))
    assert seconds.back_s == pytest.approx(12.0 - 8.0)


def test_the_time_until_a_choice_is_seen_is_measured():
    story = both_arms()
    story.add("decisions", 44.0, "petals", "gap", server="b1", phase="choose", moved=True, chosen="14:24")
    assert sim_vs_real.load_seconds(story.rows, 0.4).announce_s == pytest.approx(50.0 - 44.0 - 0.5)


def test_a_real_value_within_the_simulations_agrees():
    arms = sim_vs_real.by_arm(worlds())
    assert (arms["petals"]["moves_real"], arms["petals"]["moves_simulated"]) == (2, 2.5)
    assert (arms["petals"]["moves_low"], arms["petals"]["moves_high"]) == (2.0, 3.0)
    assert arms["petals"]["out_of_service_s_error"] == pytest.approx(1.0)
    assert set(verdicts(worlds()).values()) == {Verdict.HOLDS}


def test_a_real_value_outside_of_them_does_not():
    assert verdicts(worlds(real=(5, 13.0)))["petals / moves"] is Verdict.FAILS
    assert verdicts(worlds(real=(2, 40.0)))["petals / out_of_service_s"] is Verdict.FAILS


def test_the_larger_of_both_tolerances_counts():
    assert verdicts(worlds(real=(2, 19.0)))["petals / out_of_service_s"] is Verdict.HOLDS
    assert verdicts(worlds(real=(2, 20.0)))["petals / out_of_service_s"] is Verdict.FAILS


MEAN = {"moves": {"absolute": 9, "mean": {"absolute": 1, "relative": 0.5}}}


@pytest.mark.parametrize(
    ("real", "simulated", "verdict"),
    [
        (4, (1, 12), Verdict.FAILS),  # the real value lies between them, but their mean is 2.5 off
        (4, (2, 10), Verdict.HOLDS),  # 2 off: half of the real value
        (1, (1, 3), Verdict.HOLDS),  # 1 off
        (1, (2, 3), Verdict.FAILS),
        (0, (1, 1), Verdict.HOLDS),  # nothing to have a share of
    ],
)
def test_the_mean_of_the_simulations_is_held_to_the_real_value(real, simulated, verdict):
    arms = sim_vs_real.by_arm(worlds(real=(real, 9.0), simulated=[(moves, 9.0) for moves in simulated]))
    found = {finding.name: finding for finding in sim_vs_real.check(arms, MEAN, {"arms": ["petals"]})}
    assert found["petals / moves"].verdict is Verdict.HOLDS
    assert found["petals / moves / mean"].verdict is verdict


def test_a_tolerance_below_nothing_is_no_tolerance():
    arms = sim_vs_real.by_arm(worlds())
    for slack in ({"absolute": -1}, {"mean": {"relative": -1}}):
        with pytest.raises(ValueError, match="at least 0"):
            list(sim_vs_real.check(arms, {"moves": slack}, {"arms": ["petals"]}))


def test_without_simulations_nothing_is_concluded():
    rows = worlds(simulated=())
    findings = list(sim_vs_real.check(sim_vs_real.by_arm(rows), WANTED, {"arms": ["petals", "recheck"]}))
    assert [finding.verdict for finding in findings if finding.assumption] == [Verdict.UNKNOWN] * 2
    assert {finding.verdict for finding in findings if not finding.assumption} == {Verdict.UNKNOWN}


def test_figure_and_table_show_both_worlds():
    rows = worlds()
    arms = sim_vs_real.by_arm(rows)
    figure = agreement_figure(rows, arms, INFO)
    assert len(figure.axes[0].get_lines()) == 2, "real, and the mean of the simulations"
    assert figure.axes[0].get_ylim()[0] < 0, "a line at 0 is not hidden by the axis"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "real (in the arm's colour)", "simulated, mean", "simulated, least to most",
    ]  # fmt: skip
    assert not any(axes.get_legend() for axes in figure.axes), "no legend lies on the data"
    assert "n = 2 seeds" in figure.texts[-1].get_text().replace("\n", " ")
    assert agreement_table(arms).row_count == 1 + 4
