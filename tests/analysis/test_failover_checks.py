from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.failover_checks import check_failover
from swarmlab.analysis.metrics import FAILURES
from swarmlab.judges.failover import planned
from tests.analysis.histories import AT_TOKEN, DEFAULT_SCENARIOS, History, default_run

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "failover"
EXPECTED = yaml.safe_load((EXPERIMENT / "expected.yaml").read_text(encoding="utf-8"))
# of what the experiment can show, what its default set does
EXPECTED_BY_DEFAULT = planned(
    EXPECTED, {"scenarios": DEFAULT_SCENARIOS, "arms": ["petals", "issue_patch", "swarmlab"]}
)


def check(history, expected=EXPECTED_BY_DEFAULT, status="complete"):
    evidence = history.evidence()
    return check_failover(evidence, summarise(measure(evidence))["scenarios"], expected, status)


def against(findings):
    return [str(finding) for finding in findings if finding.verdict is not Verdict.HOLDS]


def rows_of(history, kind, arm, scenario="kill_last"):
    return [row for row in history.rows[kind] if row["arm"] == arm and row["scenario"] == scenario]


def test_the_run_that_was_measured_holds():
    findings = check(default_run())
    assert conclude(findings) is Verdict.HOLDS
    assert against(findings) == []


def test_an_arm_that_gave_up_at_the_first_of_several_failures_need_not_have_met_the_others():
    expected = {"scenarios": {"kill_last": {"failures": 3, "arms": {"petals": {"outcome": "exception"}}}}}
    history = History().controls()
    history.arm("petals", outcome="exception", tokens=AT_TOKEN, error="AssertionError", broken=True)
    assert conclude(check(history, expected)) is Verdict.HOLDS
    for row in rows_of(history, "faults", "petals"):
        row["ok"] = row["stage"] != "confirm"
    assert conclude(check(history, expected)) is Verdict.UNKNOWN
    expected["scenarios"]["kill_last"]["arms"] = {"swarmlab": {"outcome": "identical"}}
    assert conclude(check(history.arm("swarmlab"), expected)) is Verdict.UNKNOWN, "it met one of three"


def swarmlab_gets_a_token_wrong(history):
    rows_of(history, "steps", "swarmlab")[-1]["token_ids"] = [-1]
    history.arrays["kill_last", "swarmlab"]["token_ids"][0, -1] = -1


def swarmlab_gets_hidden_states_wrong(history):
    history.arrays["kill_last", "swarmlab"]["hidden"][0, -1] += 1.0


def swarmlab_raises(history):
    rows_of(history, "outcomes", "swarmlab")[0].update(outcome="exception", error="RuntimeError: no server")


def swarmlab_is_slow(history):
    rows_of(history, "failovers", "swarmlab")[0]["total_s"] = 60.0


def petals_survives(history):
    history.rows["outcomes"].remove(rows_of(history, "outcomes", "petals")[0])
    history.arm("petals", "kill_last")


def petals_fails_with_something_else(history):
    rows_of(history, "outcomes", "petals")[0].update(
        error="OSError: disk full", seen_broken_input_cache=False
    )


def issue_patch_is_right_after_a_split(history):
    history.rows["outcomes"].remove(rows_of(history, "outcomes", "issue_patch", "split_replacement")[0])
    history.rows["steps"] = [
        row
        for row in history.rows["steps"]
        if (row["arm"], row["scenario"]) != ("issue_patch", "split_replacement")
    ]
    history.arm("issue_patch", "split_replacement")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (swarmlab_gets_a_token_wrong, "kill_last / swarmlab / outcome: wrong, expected identical (31 of 32"),
        (
            swarmlab_gets_hidden_states_wrong,
            "kill_last / swarmlab / outcome: wrong, expected identical (hidden",
        ),
        (
            swarmlab_raises,
            "kill_last / swarmlab / outcome: exception, expected identical (RuntimeError: no server)",
        ),
        (swarmlab_is_slow, "kill_last / swarmlab / recovery_over_floor: 666.7, expected at most 50"),
        (petals_survives, "kill_last / petals / outcome: identical, expected exception"),
        (
            petals_fails_with_something_else,
            "kill_last / petals / seen_broken_input_cache: False, expected True",
        ),
        (
            issue_patch_is_right_after_a_split,
            "split_replacement / issue_patch / outcome: identical, expected wrong",
        ),
    ],
)
def test_a_run_that_shows_something_else_fails(change, reason):
    history = default_run()
    change(history)
    findings = check(history)
    assert conclude(findings) is Verdict.FAILS
    assert any(text.startswith(f"fails: {reason}") for text in against(findings)), against(findings)


def confirmation_refused(history):
    fault = next(row for row in rows_of(history, "faults", "petals") if row["stage"] == "confirm")
    fault.update(ok=False, detail="the process is still there")


def confirmation_missing(history):
    history.rows["faults"].remove(
        next(row for row in rows_of(history, "faults", "petals") if row["stage"] == "confirm")
    )


def confirmation_without_answer(history):
    next(row for row in rows_of(history, "faults", "petals") if row["stage"] == "confirm")["ok"] = None


def second_fault_not_confirmed(history):
    fault = next(row for row in rows_of(history, "faults", "petals") if row["stage"] == "inject")
    history.rows["faults"].append({**fault, "target": "d"})


def no_fault_at_all(history):
    history.rows["faults"] = [row for row in history.rows["faults"] if row["scenario"] != "kill_last"]


def cleanup_failed(history):
    rows_of(history, "faults", "petals")[-1]["ok"] = False


def reference_missing(history):
    del history.arrays["kill_last", "reference"]
    history.rows["steps"] = [row for row in history.rows["steps"] if row["arm"] != "reference"]


def reference_without_hidden_states(history):
    del history.arrays["kill_last", "reference"]


def plain_missing(history):
    del history.arrays["kill_last", "plain"]


def plain_has_other_tokens(history):
    history.arrays["kill_last", "plain"]["token_ids"][0, 5] += 1


def plain_has_other_hidden_states(history):
    history.arrays["kill_last", "plain"]["hidden"][0, 5] += 0.01


def arm_missing(history):
    for kind in ("steps", "outcomes", "faults"):
        history.rows[kind] = [row for row in history.rows[kind] if row["arm"] != "issue_patch"]


def scenario_missing(history):
    for kind in ("steps", "outcomes", "faults"):
        history.rows[kind] = [row for row in history.rows[kind] if row["scenario"] != "prefill"]


def arrays_disagree_with_the_history(history):
    rows_of(history, "steps", "swarmlab")[3]["token_ids"] = [-1]


def broken_cache_not_looked_for(history):
    rows_of(history, "outcomes", "petals")[0]["seen_broken_input_cache"] = None


def floor_missing(history):
    history.rows["floors"] = [row for row in history.rows["floors"] if row["scenario"] != "kill_last"]


def a_row_is_malformed(history):
    rows_of(history, "faults", "swarmlab")[0]["ok"] = "yes"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (confirmation_refused, "kill of c at confirm: the process is still there"),
        (confirmation_missing, "0 failures confirmed of 1"),
        (confirmation_without_answer, "kill of c at confirm"),
        (second_fault_not_confirmed, "1 failures confirmed of 2"),
        (no_fault_at_all, "0 failures confirmed of 1"),
        (cleanup_failed, "kill of c at cleanup"),
        (reference_missing, "0 tokens of the failure-free run"),
        (reference_without_hidden_states, "cannot be compared"),
        (plain_missing, "cannot be compared"),
        (plain_has_other_tokens, "plain transformers gives other tokens"),
        (plain_has_other_hidden_states, "differ by 0.01"),
        (arm_missing, "kill_last / issue_patch: not in this run"),
        (scenario_missing, "prefill / petals: not in this run"),
        (arrays_disagree_with_the_history, "disagree on the tokens"),
        (broken_cache_not_looked_for, "kill_last / petals / seen_broken_input_cache: not available"),
        (floor_missing, "kill_last / swarmlab / recovery_over_floor: not available"),
        (a_row_is_malformed, "kill of c at setup"),
    ],
)
def test_a_run_that_cannot_support_a_verdict_is_unknown_and_says_why(change, reason):
    history = default_run()
    change(history)
    findings = check(history)
    assert conclude(findings) is Verdict.UNKNOWN
    assert any(text.startswith("unknown") and reason in text for text in against(findings)), against(findings)


@pytest.mark.parametrize("status", ["running", "interrupted", "failed", "None"])
def test_a_run_that_did_not_complete_is_unknown_even_if_all_that_it_has_is_right(status):
    findings = check(default_run(), status=status)
    assert conclude(findings) is Verdict.UNKNOWN
    assert against(findings) == [f"unknown: run: its status is {status}"]


def test_a_text_that_repeats_itself_is_an_empty_check():
    history = default_run()
    for arrays in history.arrays.values():
        arrays["token_ids"] %= 5
    for row in history.rows["steps"]:
        row["token_ids"] = [token % 5 for token in row["token_ids"]]
    findings = check(history)
    assert conclude(findings) is Verdict.UNKNOWN
    assert any("5 distinct tokens in 32, 10 needed" in text for text in against(findings))


def test_a_nemesis_step_not_confirmed_outweighs_what_fails_elsewhere():
    history = default_run()
    confirmation_refused(history)
    swarmlab_raises(history)
    findings = check(history)
    assert conclude(findings) is Verdict.UNKNOWN
    assert any(text.startswith("fails") for text in against(findings))


def test_more_failures_can_be_asked_for():
    expected = {"scenarios": {"kill_last": {"failures": 2, "arms": {"swarmlab": {"outcome": "identical"}}}}}
    history = History().controls().arm("swarmlab", failover_row=True)
    assert conclude(check(history, expected)) is Verdict.UNKNOWN
    history.fault("swarmlab", "kill_last", 102.0, AT_TOKEN + 9)
    assert conclude(check(history, expected)) is Verdict.HOLDS


def test_a_metric_that_does_not_exist_is_unknown():
    expected = {"scenarios": {"kill_last": {"arms": {"swarmlab": {"outcomez": "identical"}}}}}
    findings = check(History().controls().arm("swarmlab"), expected)
    assert conclude(findings) is Verdict.UNKNOWN
    assert any("outcomez" in text for text in against(findings))


def test_expectations_cover_all_scenarios_and_count_their_failures():
    counted = {}
    for path in (EXPERIMENT / "scenarios").glob("*.yaml"):
        scenario = yaml.safe_load(path.read_text(encoding="utf-8"))
        counted[path.stem] = sum(fault["fault"] in FAILURES for fault in scenario["faults"])
    assert {name: wanted.get("failures", 1) for name, wanted in EXPECTED["scenarios"].items()} == counted


def test_the_expectations_are_the_experiments_claim():
    scenarios = EXPECTED["scenarios"]
    for scenario in scenarios.values():
        assert scenario["arms"]["swarmlab"]["outcome"] == "identical"
    for name in ("kill_last", "kill_first", "kill_middle", "split_replacement", "batch_of_3"):
        assert scenarios[name]["arms"]["petals"] == {"outcome": "exception", "seen_broken_input_cache": True}
    for name in ("split_replacement", "batch_of_3"):
        assert scenarios[name]["arms"]["issue_patch"]["outcome"] == "wrong"
