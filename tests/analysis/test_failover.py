from __future__ import annotations

import numpy as np
import pytest

from swarmlab.analysis.failover import OUTCOMES, measure, summarise, worst
from tests.analysis.histories import AT_TOKEN, TOKENS, History, default_run


def measured(history, arm="swarmlab", scenario="kill_last", **evidence):
    return summarise(measure(history.evidence(**evidence)))["scenarios"][scenario][arm]


def run(arm="swarmlab", **changes):
    return History().controls().arm(arm, **changes)


def test_identical_needs_the_same_tokens_and_hidden_states_within_the_tolerance():
    metrics = measured(run(noise=2e-4))
    assert metrics["outcome"] == "identical"
    assert metrics["tokens_identical_ratio"] == 1.0
    assert metrics["max_abs_diff"] == pytest.approx(2e-4, rel=1e-2)
    assert metrics["max_abs_diff_plain"] == pytest.approx(2e-4, rel=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"wrong": (20,)},
        {"wrong": (TOKENS - 1,)},
        {"noise": 4e-4},
        {"noise": float("nan")},
        {"tokens": TOKENS - 1},
    ],
)
def test_an_arm_that_calls_itself_identical_is_judged_again_and_found_wrong(changes):
    assert measured(run(outcome="identical", **changes))["outcome"] == "wrong"


def test_an_arm_that_calls_itself_wrong_is_judged_again_and_found_identical():
    assert measured(run(outcome="wrong"))["outcome"] == "identical"


def test_a_stream_renewed_before_its_time_limit_is_no_recovery():
    history = run(failover_row=True)
    [recovery] = history.rows["failovers"]
    before = measured(history)
    history.rows["failovers"].append({**recovery, "cause": "renewed", "total_s": 60.0, "replay_s": 60.0})
    assert measured(history) == before


def test_the_tolerance_decides():
    assert measured(run(noise=0.01), tolerance=0.1)["outcome"] == "identical"
    assert measured(run(noise=0.01), tolerance=0.001)["outcome"] == "wrong"


@pytest.mark.parametrize("cut", [np.s_[:, 3:], np.s_[:, :, :2], np.s_[:0]])
def test_hidden_states_of_another_shape_are_wrong_even_if_every_token_is_right(cut):
    history = run()
    arrays = history.arrays["kill_last", "swarmlab"]
    arrays["hidden"] = arrays["hidden"][cut]
    metrics = measured(history)
    assert metrics["outcome"] == "wrong"
    assert metrics["max_abs_diff"] is None
    assert "hidden states are" in metrics["why"]


def test_rows_lost_from_a_batch_are_wrong():
    history = History(batch=3).controls().arm("issue_patch", outcome="wrong")
    arrays = history.arrays["kill_last", "issue_patch"]
    history.arrays["kill_last", "issue_patch"] = {name: array[:1] for name, array in arrays.items()}
    metrics = measured(history, "issue_patch")
    assert metrics["outcome"] == "wrong"
    assert metrics["tokens_identical_ratio"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("outcome", ["exception", "hang"])
def test_an_exception_or_a_hang_stays_what_was_recorded(outcome):
    metrics = measured(
        run(outcome=outcome, tokens=AT_TOKEN, error="AssertionError: Broken input cache", broken=True)
    )
    assert metrics["outcome"] == outcome
    assert metrics["tokens_identical_ratio"] == AT_TOKEN / TOKENS
    assert metrics["max_abs_diff"] == pytest.approx(1e-5, rel=1e-2)  # of the tokens that it did produce
    assert metrics["recovery_s_median"] is None
    assert metrics["recovery_over_floor"] is None
    assert metrics["fault_to_correct_s"] is None
    assert metrics["stall_s"] is None
    assert metrics["seen_broken_input_cache"] is True


def test_without_arrays_tokens_still_show_that_it_is_wrong_but_never_that_it_is_identical():
    for wrong, outcome in (((9,), "wrong"), ((), None)):
        history = run(wrong=wrong)
        del history.arrays["kill_last", "swarmlab"]
        metrics = measured(history)
        assert metrics["outcome"] == outcome
        assert metrics["max_abs_diff"] is None


def test_without_a_failure_free_run_nothing_is_judged():
    metrics = measured(History().arm("swarmlab"))
    assert metrics["outcome"] is None
    assert metrics["tokens_identical_ratio"] is None
    assert metrics["recovery_s_median"] is None


def test_an_arm_that_left_no_outcome_is_not_judged():
    history = run()
    history.rows["outcomes"] = [row for row in history.rows["outcomes"] if row["arm"] != "swarmlab"]
    assert measured(history)["outcome"] is None


def test_recovery_is_what_the_arm_measured_split_into_its_stages():
    metrics = measured(run(failover_row=True, recovery_s=0.4))
    assert metrics["recovery_s_median"] == metrics["recovery_s_p95"] == 0.28
    stages = {name: metrics[name] for name in ("detect_s", "reroute_s", "connect_s", "replay_s")}
    assert stages == {"detect_s": 0.05, "reroute_s": 0.01, "connect_s": 0.02, "replay_s": 0.2}
    assert metrics["floor_s"] == pytest.approx(0.09)
    assert metrics["recovery_over_floor"] == pytest.approx(0.28 / 0.09)
    assert metrics["fault_to_correct_s"] == pytest.approx(0.6)
    assert metrics["stall_s"] == 0.4


def test_an_arm_that_measures_nothing_is_timed_from_the_fault_to_its_first_right_token():
    metrics = measured(run("issue_patch", recovery_s=5.0), "issue_patch")
    assert metrics["fault_to_correct_s"] == metrics["recovery_s_median"] == pytest.approx(5.2)
    assert metrics["recovery_over_floor"] == pytest.approx(5.2 / 0.09)
    assert metrics["detect_s"] is None


@pytest.mark.parametrize("changes", [{"wrong": (AT_TOKEN, AT_TOKEN + 1)}, {"noise": 1.0}])
def test_a_session_that_ends_wrong_has_no_right_token_after_its_failure(changes):
    """Single tokens that come out right by chance, and all of them with other hidden states, mend nothing."""
    metrics = measured(run("issue_patch", recovery_s=5.0, **changes), "issue_patch")
    assert metrics["outcome"] == "wrong"
    assert metrics["fault_to_correct_s"] is None
    assert metrics["recovery_s_median"] is None


def test_a_failure_that_nothing_right_came_after_is_not_hidden_by_one_that_was_survived():
    history = run("issue_patch", recovery_s=5.0, outcome="exception", tokens=AT_TOKEN + 3, error="E: no")
    history.fault("issue_patch", "kill_last", 150.0, AT_TOKEN + 3)
    for row in history.rows["faults"][-4:]:
        row["target"] = "b"
    metrics = measured(history, "issue_patch")
    assert metrics["failures_injected"] == 2
    assert metrics["fault_to_correct_s"] is None


def test_over_scenarios_too_one_that_never_recovered_counts():
    metrics = summarise(measure(default_run().evidence()))["arms"]
    assert metrics["petals"]["fault_to_correct_s"] is None
    assert metrics["swarmlab"]["fault_to_correct_s"] is not None


def test_a_missing_floor_leaves_the_ratio_unknown():
    history = run(failover_row=True)
    del history.rows["floors"]
    assert measured(history)["floor_s"] is None
    assert measured(history)["recovery_over_floor"] is None


def test_a_floor_of_the_arm_itself_goes_before_the_common_one():
    history = run(failover_row=True)
    history.add(
        "floors", "swarmlab", "kill_last", 51.0, repeat=0, tokens=8, connect_s=0.04, prefill_s=0.1, spans=[]
    )
    assert measured(history)["floor_s"] == pytest.approx(0.14)


def test_a_fault_that_was_not_confirmed_is_no_failure():
    history = run()
    for row in history.rows["faults"]:
        row["ok"] = row["stage"] != "confirm"
    metrics = measured(history)
    assert metrics["failures_injected"] == 0
    assert metrics["recovery_s_median"] is None


def test_speed_counts_decode_steps_only():
    history = run(recovery_s=0.1)
    history.rows["steps"] = [
        {**row, "seconds": 50.0} if row["phase"] == "prefill" else row for row in history.rows["steps"]
    ]
    assert measured(history)["steps_per_s"] == pytest.approx(10.0)


def test_an_arm_is_summed_over_its_scenarios():
    summary = summarise(measure(default_run().evidence()))
    assert list(summary["scenarios"]) == [
        "kill_last", "kill_first", "kill_middle", "split_replacement", "batch_of_3", "prefill",
    ]  # fmt: skip
    arms = summary["arms"]
    assert {arm: metrics["outcome"] for arm, metrics in arms.items()} == {
        "petals": "exception",
        "issue_patch": "wrong",
        "swarmlab": "identical",
    }
    assert arms["petals"]["outcomes"] == {"exception": 5, "identical": 1}
    assert arms["issue_patch"]["outcomes"] == {"identical": 3, "wrong": 3}
    assert arms["swarmlab"]["sessions"] == arms["swarmlab"]["failures_injected"] == 6
    assert arms["petals"]["tokens_identical_ratio"] == pytest.approx((5 * AT_TOKEN + TOKENS) / (6 * TOKENS))
    assert arms["issue_patch"]["recovery_s_median"] == pytest.approx(5.2)  # of those that are right


def test_the_controls_are_not_compared_arms():
    assert set(summarise(measure(run().evidence()))["arms"]) == {"swarmlab"}


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["identical", "identical"], "identical"),
        (["identical", None], None),
        (["exception", None], "exception"),
        (list(OUTCOMES), "wrong"),
        (["identical", "exception", "hang"], "hang"),
        ([], None),
    ],
)
def test_the_worst_outcome_stands_for_all(outcomes, expected):
    assert worst(outcomes) == expected


def test_an_empty_history_shows_nothing():
    assert summarise(measure(History().evidence())) == {"arms": {}, "scenarios": {}}
