"""The judge of +exp=failure_rates on records that hold, fail, and cannot say."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.failure_rates import cell_metrics, measure
from swarmlab.analysis.failure_rates_checks import check_failure_rates
from swarmlab.analysis.failure_rates_table import failure_rates_table, ours, papers
from swarmlab.analysis.plots.failure_rates import failure_rates_figure
from swarmlab.analysis.style import style_of
from swarmlab.judges.failure_rates import draw_repeats
from tests.analysis.failure_rates_rows import EXPECTED, FREE, INFO, LENGTH, LOSSY, controls, good_run


def judge(rows, expected=EXPECTED, info=INFO):
    numbers = measure(rows.record)
    findings = check_failure_rates(rows.record, numbers, expected, info)
    against = [str(finding) for finding in findings if finding.verdict is not Verdict.HOLDS]
    return conclude(findings), against


def test_rates_ratios_and_errors_of_what_was_run():
    numbers = cell_metrics(good_run().record, LOSSY, "swarmlab")
    assert numbers["steps_per_s"] == pytest.approx(LENGTH / 3.5)
    assert numbers["ratio_to_failure_free"] == pytest.approx(2.0 / 3.5)
    assert (numbers["failures"], numbers["resets_confirmed"], numbers["how"]) == (5, 5, "measured")
    assert numbers["tokens_identical_ratio"] == 1.0
    assert numbers["failures_expected"] == pytest.approx(5.05, abs=0.01)
    assert numbers["cost_error"] == pytest.approx(0.0), "2 s of steps and five failures of 0.3 s"
    assert numbers["closed_form_error"] == pytest.approx((2 + 5.0505 * 0.3) / 3.5 - 1, abs=1e-3)


def test_a_recovery_that_failed_in_turn_counts_for_every_failure_in_it():
    rows = good_run()
    last = next(row for row in reversed(rows.history["failovers"]) if row["arm"] == "swarmlab")
    last["failed"] = [{"peer": "a"}, {"peer": "a"}]
    assert cell_metrics(rows.record, LOSSY, "swarmlab")["failures"] == 6
    verdict, against = judge(rows)
    assert verdict is Verdict.UNKNOWN, "the servers tell of five messages only"
    assert "met 6 failures" in against[0]


def test_a_cell_that_was_not_run_is_computed_from_those_that_were():
    numbers = cell_metrics(good_run().record, LOSSY, "cacheless")
    assert (numbers["outcome"], numbers["how"]) == ("simulated", "simulated")
    assert numbers["steps_per_s"] == pytest.approx(10 * 0.99**5)
    assert numbers["ratio_to_failure_free"] == pytest.approx(0.99**5)
    assert numbers["tokens_identical_ratio"] is None
    assert numbers["closed_form_error"] is None, "nothing was measured to compare with"


def test_what_does_not_finish_has_no_rate():
    numbers = cell_metrics(good_run().record, LOSSY, "restart")
    assert (numbers["outcome"], numbers["how"], numbers["tokens_produced"]) == ("unfinished", "bounded", 30)
    assert numbers["steps_per_s"] is None
    assert ours(numbers) == ("no end", "0")


def test_petals_is_compared_with_the_failure_free_sessions_that_it_is_made_of():
    rows = controls().generation("petals", LOSSY, elapsed_s=2.5)
    assert cell_metrics(rows.record, LOSSY, "petals")["ratio_to_failure_free"] == pytest.approx(0.8)


def test_without_a_failure_free_cell_there_is_no_ratio_and_no_simulation():
    rows = good_run()
    rows.history["outcomes"] = [row for row in rows.history["outcomes"] if row["p"] > 0]
    for arm in ("swarmlab", "cacheless"):
        assert cell_metrics(rows.record, LOSSY, arm)["ratio_to_failure_free"] is None
    assert cell_metrics(rows.record, LOSSY, "cacheless")["steps_per_s"] is None


def test_restarted_generations_are_judged_by_their_last_attempt():
    rows = controls()
    rows.generation("restart", LOSSY, tokens=40, wrong=(3,), outcome="done", elapsed_s=None, session=0)
    rows.history["outcomes"].pop()
    rows.generation("restart", LOSSY, elapsed_s=2.9, session=1, steps_run=141)
    numbers = cell_metrics(rows.record, LOSSY, "restart")
    assert numbers["tokens_identical_ratio"] == 1.0


def test_a_good_run_holds():
    assert judge(good_run()) == (Verdict.HOLDS, [])


def test_tokens_that_differ_fail_in_any_cell():
    for cell, elapsed_s in ((FREE, 2.0), (LOSSY, 3.5)):
        rows = good_run()
        for kind in ("steps", "outcomes"):
            rows.history[kind] = [
                row for row in rows.history[kind] if (row["arm"], row["scenario"]) != ("swarmlab", cell.name)
            ]
        rows.generation("swarmlab", cell, elapsed_s=elapsed_s, wrong=(70,))
        verdict, against = judge(rows)
        assert verdict is Verdict.FAILS
        assert f"{cell.name} / swarmlab / tokens_identical_ratio" in against[0]


def test_too_slow_fails():
    rows = good_run()
    for row in rows.history["outcomes"]:
        if (row["arm"], row["p"]) == ("swarmlab", LOSSY.p):
            row["elapsed_s"] = 4.1
    verdict, against = judge(rows)
    assert verdict is Verdict.FAILS
    assert "ratio_to_failure_free" in against[0]


def test_costs_that_do_not_explain_the_time_fail():
    rows = good_run()
    for row in rows.history["failovers"]:
        if row["arm"] == "swarmlab":
            row["total_s"] = 3.0
    verdict, against = judge(rows)
    assert verdict is Verdict.FAILS
    assert "swarmlab / cost_error_max" in against[-1]


def spoil_status(_rows, info):
    info["status"] = "interrupted"


def spoil_confirmation(rows, _info):
    rows.failures("swarmlab", LOSSY, 1, confirmed=0)


def spoil_reset(rows, _info):
    rows.failures("swarmlab", LOSSY, 1, ok=False)


def spoil_count(rows, _info):
    rows.failures("swarmlab", LOSSY, 40)


def spoil_messages(rows, _info):
    """The switch never worked: no message was lost."""
    for kind in ("faults", "failovers"):
        rows.history[kind] = [row for row in rows.history[kind] if row["arm"] != "swarmlab"]
    rows.failures("swarmlab", LOSSY, 0, met=1)
    rows.add(
        "failovers", "swarmlab", LOSSY, session=0, token=5, cause="broken", total_s=0.3, tokens_replayed=5
    )


def spoil_reference(rows, _info):
    rows.history["steps"] = [row for row in rows.history["steps"] if row["arm"] != "plain"]


def spoil_text(rows, _info):
    for row in rows.history["steps"]:
        row["token_ids"] = [7]


def spoil_cells(_rows, info):
    info["scenarios"] = [*info["scenarios"], "1024_tokens_p_0.01"]


def spoil_arms(rows, _info):
    rows.history["outcomes"] = [row for row in rows.history["outcomes"] if row["arm"] != "cacheless"]


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_status, spoil_confirmation, spoil_reset, spoil_count, spoil_messages, spoil_reference, spoil_text,
        spoil_cells, spoil_arms,
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_trusted_is_unknown(spoil):
    rows, info = good_run(), copy.deepcopy(INFO)
    spoil(rows, info)
    verdict, against = judge(rows, info=info)
    assert verdict is Verdict.UNKNOWN, against
    assert against


def test_the_table_marks_what_is_simulated_and_what_is_confirmed():
    summary = measure(good_run().record)
    cells = summary["scenarios"][LOSSY.name]
    assert ours(cells["cacheless"])[0].startswith("~")
    assert not ours(cells["swarmlab"])[0].startswith("~")
    assert failure_rates_table(summary).row_count == 7 + len(summary["scenarios"])
    paper = {"paper_steps_per_s": 2.17, "paper_ratio": 2.17 / 10.7, "paper_source": "confirmed"}
    assert papers(paper) == ("2.17*", "0.2*")
    unfinished = {"paper_steps_per_s": None, "paper_ratio": 0.0, "paper_source": "confirmed"}
    assert papers(unfinished) == (">1 h*", "0*")


def test_the_figure_has_a_panel_per_arm_and_tells_measured_from_simulated_by_shape():
    figure = failure_rates_figure(measure(good_run().record)["scenarios"], INFO)
    titles = [axes.get_title(loc="left").partition(",")[0] for axes in figure.axes]
    assert titles == ["restart", "cacheless", "swarmlab", "petals"]
    style = style_of("cacheless")
    marks = [line for line in figure.axes[1].get_lines() if line.get_marker() == style.marker]
    assert [line.get_markerfacecolor() for line in marks] == [style.color, "white"]
    assert [line.get_marker() for line in figure.axes[0].get_lines()][-1] == "x", "it did not finish"
    assert [text.get_text() for text in figure.axes[1].texts] == ["10", "~9.51"]


def test_each_arm_looks_as_in_every_other_figure():
    figure = failure_rates_figure(measure(good_run().record)["scenarios"], INFO)
    for axes in figure.axes:
        arm = axes.get_title(loc="left").partition(",")[0]
        [line] = [one for one in axes.get_lines() if one.get_zorder() == 3]
        assert line.get_color() == style_of(arm).color


def test_no_number_lies_on_a_point():
    figure = failure_rates_figure(measure(good_run().record)["scenarios"], INFO)
    for axes in figure.axes:
        points = [float(y) for line in axes.get_lines() for y in np.asarray(line.get_ydata())]
        assert all(text.get_position()[1] > max(points) + 0.1 for text in axes.texts)


def test_repeats_leave_out_cells_without_failures_and_mark_what_was_computed():
    numbers = measure(good_run().record)
    runs = [({**INFO, "id": name, "seed": 0}, numbers) for name in ("a", "b")]
    figure = draw_repeats(runs)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [LOSSY.name.replace("_", " ")]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "cacheless, computed" in labels
    assert "swarmlab" in labels


def test_a_stream_renewed_before_its_time_limit_is_no_failure():
    rows = good_run()
    before = measure(rows.record)
    rows.add(
        "failovers", "swarmlab", LOSSY, session=0, token=5, cause="renewed", total_s=9.0, tokens_replayed=5
    )
    assert measure(rows.record) == before
