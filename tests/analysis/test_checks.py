from __future__ import annotations

import pytest

from swarmlab.analysis.checks import EXIT_CODES, Finding, Verdict, assume, conclude, expect, guard

HOLDS, FAILS, UNKNOWN = (Finding("x", verdict, "because") for verdict in Verdict)
MET, UNMET = assume("a", True, "fine"), assume("a", False, "the fault was not confirmed")


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([HOLDS, MET], Verdict.HOLDS),
        ([HOLDS, FAILS], Verdict.FAILS),
        ([HOLDS, UNKNOWN], Verdict.UNKNOWN),
        ([FAILS, UNKNOWN], Verdict.FAILS),
        ([HOLDS, UNMET], Verdict.UNKNOWN),
        ([FAILS, UNMET], Verdict.UNKNOWN),
        ([MET], Verdict.UNKNOWN),
        ([], Verdict.UNKNOWN),
    ],
)
def test_assumptions_come_first_then_the_worst_finding(findings, verdict):
    assert conclude(findings) is verdict
    assert conclude(findings[::-1]) is verdict


def test_a_check_that_throws_is_unknown_with_its_reason():
    def broken(value):
        yield HOLDS
        raise KeyError(value)

    (finding,) = guard("kill_last / petals", broken, "seconds")
    assert conclude([HOLDS, finding]) is Verdict.UNKNOWN
    assert "KeyError" in finding.reason
    assert "seconds" in finding.reason


@pytest.mark.parametrize(
    ("measured", "wanted", "verdict"),
    [
        ("identical", "identical", Verdict.HOLDS),
        ("wrong", "identical", Verdict.FAILS),
        ("wrong", ["wrong", "exception"], Verdict.HOLDS),
        ("hang", ["wrong", "exception"], Verdict.FAILS),
        (None, "identical", Verdict.UNKNOWN),
        (True, True, Verdict.HOLDS),
        (False, True, Verdict.FAILS),
        (None, True, Verdict.UNKNOWN),
        (3.0, {"max": 3}, Verdict.HOLDS),
        (3.1, {"max": 3}, Verdict.FAILS),
        (2.9, {"min": 3}, Verdict.FAILS),
        (3.0, {"min": 3, "max": 3}, Verdict.HOLDS),
        (2.0, {"value": 2.5, "tolerance": 0.5}, Verdict.HOLDS),
        (1.9, {"value": 2.5, "tolerance": 0.5}, Verdict.FAILS),
        (None, {"max": 3}, Verdict.UNKNOWN),
        (float("nan"), {"max": 3}, Verdict.FAILS),
        (float("nan"), {"min": 3}, Verdict.FAILS),
    ],
)
def test_what_was_measured_is_held_against_what_was_expected(measured, wanted, verdict):
    assert expect("x", measured, wanted).verdict is verdict


@pytest.mark.parametrize("wanted", [{}, {"maximum": 3}, {"max": 3, "note": "generous"}])
def test_an_expectation_that_is_not_understood_is_an_error_and_never_a_pass(wanted):
    with pytest.raises(ValueError, match="expected min, max"):
        expect("x", 1.0, wanted)


def test_exit_codes_are_the_documented_ones():
    assert {verdict.value: code for verdict, code in EXIT_CODES.items()} == {
        "holds": 0,
        "fails": 1,
        "unknown": 3,
    }
