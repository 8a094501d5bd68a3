from __future__ import annotations

import pytest

from swarmlab.analysis import rebalance_checks as checks
from swarmlab.analysis.checks import Verdict
from swarmlab.analysis.rebalance import TIMELINE, parts
from tests.analysis.rebalance_rows import INFO, both_arms


def doubts(story, info=INFO):
    found = parts(story.rows)
    findings = list(checks.check_run(found, info, TIMELINE, 1.0))
    findings.append(checks.check_decisions(found, "petals"))
    findings.append(checks.check_case(found["records_lost", "petals"]))
    assert all(finding.assumption for finding in findings)
    return [finding.name for finding in findings if finding.verdict is not Verdict.HOLDS]


def test_a_whole_run_is_believed():
    assert doubts(both_arms()) == []


@pytest.mark.parametrize(
    ("name", "value", "doubt"),
    [("status", "interrupted", "run / status"), ("world", "simulated", "run / world")],
)
def test_only_a_complete_real_run_is_believed(name, value, doubt):
    assert doubts(both_arms(), {**INFO, name: value}) == [doubt]


def test_an_arm_that_did_not_come_to_its_end_is_noticed():
    story = both_arms()
    del story.rows["phases"][-1]
    assert doubts(story) == ["wide_joins / swarmlab / phases"]
    assert "gap / recheck / phases" in doubts(both_arms(), {**INFO, "arms": ["recheck"]})


def test_too_few_looks_are_noticed():
    story = both_arms()
    story.rows["balance"] = [row for row in story.rows["balance"] if row["t"] > 20.0]
    assert doubts(story) == ["records_lost / petals / samples"]


@pytest.mark.parametrize("stage", ["confirm", "inject"])
def test_an_event_that_was_not_seen_makes_the_run_unknown(stage):
    story = both_arms()
    row = next(row for row in story.rows["faults"] if row["scenario"] == "gap" and row["stage"] == stage)
    row["ok"] = False
    assert "gap / petals / events" in doubts(story)


def test_an_event_that_was_left_out_is_noticed():
    story = both_arms()
    story.rows["faults"] = [row for row in story.rows["faults"] if row["target"] != "a2"]
    assert doubts(story) == ["gap / petals / events", "gap / swarmlab / events"]


def test_a_move_that_the_dht_never_showed_is_noticed():
    story = both_arms()
    story.rows["servers"] = [row for row in story.rows["servers"] if row["start"] != 14]
    assert doubts(story) == ["gap / petals / seen in the DHT", "gap / swarmlab / seen in the DHT"]


def test_a_decision_that_petals_log_does_not_know_is_noticed():
    story = both_arms()
    story.rows["logs"] = [row for row in story.rows["logs"] if row["source"] != "a1"]
    assert doubts(story) == ["petals / log"]


def test_a_line_of_the_log_without_a_decision_is_noticed():
    story = both_arms()
    story.add("logs", 40.0, "petals", "gap", about="imbalanced", source="b2")
    assert doubts(story) == ["petals / log"]


def test_without_a_decision_in_time_it_was_not_the_reports_case():
    story = both_arms()
    story.rows["decisions"][0]["t"] = 13.0  # the records are back at 12
    assert doubts(story) == ["records_lost / petals / case"]
