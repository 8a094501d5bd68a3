from __future__ import annotations

import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.published_checks import check_summary

INFO = {"status": "complete", "arms": ["petals", "swarmlab"], "scenarios": ["a"]}
SUMMARY = {
    "verdict": "holds", "reasons": ["holds: 3 checks"], "arms": {"swarmlab": {"wrong": 0}, "view": {"blocks": 80}},
    "scenarios": {"a": {"swarmlab": {"share": 0.7, "wrong": 0}, "petals": {"share": 0.5}}},
}  # fmt: skip


def verdict(expected, summary=None, info=None):
    return conclude(list(check_summary({**SUMMARY, **(summary or {})}, expected, {**INFO, **(info or {})})))


def in_a(entry):
    return {"scenarios": {"a": entry}}


@pytest.mark.parametrize(
    "expected",
    [
        in_a({"arms": {"swarmlab": {"share": {"min": 0.6}, "wrong": 0}, "petals": {"share": {"max": 0.6}}}}),
        in_a({"arms": {}, "orders": {"share": [["swarmlab", "petals"]]}}),
        {"cells": {"a": {"swarmlab": {"share": {"value": 0.7, "tolerance": 0.01}}}}},
        {"arms": {"swarmlab": {"wrong": 0}}},
        {"view": {"blocks": 80}},
        {
            "scenarios": {
                "not_run": {"arms": {"swarmlab": {"share": 3}}},
                "a": {"arms": {"swarmlab": {"wrong": 0}}},
            }
        },
    ],
)
def test_what_was_measured_is_held_against_every_kind_of_expectation(expected):
    assert verdict(expected) is Verdict.HOLDS


@pytest.mark.parametrize(
    "expected",
    [
        in_a({"arms": {"swarmlab": {"share": {"min": 0.8}}}}),
        in_a({"arms": {}, "orders": {"share": [["petals", "swarmlab"]]}}),
        {"cells": {"a": {"swarmlab": {"wrong": 1}}}},
        {"arms": {"swarmlab": {"wrong": {"min": 1}}}},
        {"view": {"blocks": 70}},
    ],
)
def test_every_kind_of_expectation_can_fail(expected):
    assert verdict(expected) is Verdict.FAILS


@pytest.mark.parametrize(
    "expected",
    [
        in_a({"arms": {"swarmlab": {"never_measured": 1}}}),
        {"view": {"never_measured": 1}},
        {"scenarios": {"not_run": {"arms": {"swarmlab": {"share": 3}}}}},
        {"scenarios": {}, "arms": {}},
    ],
)
def test_what_was_not_measured_and_what_nothing_is_expected_of_is_unknown(expected):
    assert verdict(expected) is Verdict.UNKNOWN


def test_an_arm_that_was_asked_for_and_is_not_there_is_unknown_and_another_is_left_out():
    lost = {"scenarios": {"a": {"swarmlab": {"share": 0.7}}}}
    assert verdict(in_a({"arms": {"petals": {"share": 0.5}}}), lost) is Verdict.UNKNOWN
    assert verdict(in_a({"arms": {"recheck": {"share": 0.5}, "swarmlab": {"wrong": 0}}})) is Verdict.HOLDS


def test_an_arm_of_an_order_that_was_asked_for_and_is_not_there_is_unknown():
    lost = {"scenarios": {"a": {"swarmlab": {"share": 0.7}}, "b": {"petals": {"share": 0.5}}}}
    expected = in_a({"arms": {"swarmlab": {"share": 0.7}}, "orders": {"share": [["swarmlab", "petals"]]}})
    assert verdict(expected, lost) is Verdict.UNKNOWN
    assert verdict(expected, lost, {"arms": ["swarmlab"]}) is Verdict.HOLDS


def test_what_was_planned_and_is_not_stored_is_missed_though_nothing_is_expected_of_it():
    right = in_a({"arms": {"swarmlab": {"wrong": 0}}})
    assert verdict(right) is Verdict.HOLDS
    assert verdict(right, info={"scenarios": ["a", "b"]}) is Verdict.UNKNOWN
    assert verdict(right, info={"arms": ["petals", "swarmlab", "recheck"]}) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("stored", "found"), [("fails", Verdict.FAILS), ("unknown", Verdict.UNKNOWN), (None, Verdict.UNKNOWN)]
)
def test_the_verdict_of_the_raw_record_counts(stored, found):
    assert verdict({"arms": {"swarmlab": {"wrong": 0}}}, {"verdict": stored}) is found


def test_a_run_that_did_not_complete_is_unknown():
    assert verdict({"arms": {"swarmlab": {"wrong": 1}}}, info={"status": "failed"}) is Verdict.UNKNOWN


def test_a_ratio_to_an_oracle_is_only_missed_where_one_was_asked_for():
    expected = in_a({"arms": {"swarmlab": {"tps_over_oracle": {"min": 0.9}, "wrong": 0}}})
    assert verdict(expected) is Verdict.HOLDS
    with_oracle = {"scenarios": {"a": {**SUMMARY["scenarios"]["a"], "oracle": {"share": 1.0}}}}
    assert verdict(expected, with_oracle) is Verdict.UNKNOWN
