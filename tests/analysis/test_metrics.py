from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.analysis import metrics


def step(token, t, ids, seconds=0.1):
    return {"t": t, "token": token, "token_ids": ids, "seconds": seconds}


CONFIRMED = {"t": 10.0, "at_token": 2, "fault": "kill", "stage": "confirm", "ok": True}


def test_tokens_end_at_the_first_one_missing_and_a_repeated_step_counts_once():
    steps = [step(0, 1, [5]), step(1, 2, [6]), step(1, 3, [7]), step(3, 4, [8])]
    assert metrics.tokens_of(steps) == [(5,), (7,)]
    assert metrics.tokens_of([]) == []


def test_identical_tokens_are_counted_over_all_rows_of_the_batch():
    assert metrics.identical_tokens([(1, 2), (3, 9)], [(1, 2), (3, 4), (5, 6)]) == 3
    assert metrics.identical_tokens([(1,), (3,)], [(1, 2), (3, 4)]) == 2  # rows of the batch were lost


def test_the_dullest_row_of_a_batch_decides_how_many_tokens_are_distinct():
    assert metrics.distinct_tokens([(1, 1), (2, 1), (3, 1)]) == 1
    assert metrics.distinct_tokens([]) == 0


def test_a_difference_needs_equal_shapes_unless_the_session_ended_early():
    right = np.zeros((1, 4, 2), np.float32)
    short = np.full((1, 2, 2), 0.25, np.float32)
    assert metrics.max_abs_diff(short, right) is None
    assert metrics.max_abs_diff(short, right, prefix=True) == 0.25
    assert metrics.max_abs_diff(np.zeros((3, 2, 2)), right, prefix=True) is None
    assert metrics.max_abs_diff(np.zeros((1, 0, 2)), right, prefix=True) is None
    assert metrics.max_abs_diff(np.zeros(4), np.zeros(4)) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_hidden_state_that_is_no_number_is_infinitely_far(bad):
    right = np.zeros((1, 2, 2))
    broken = right.copy()
    broken[0, 1, 1] = bad
    assert metrics.max_abs_diff(broken, right) == float("inf")


@given(st.integers(0, 3), st.floats(1e-6, 1e6))
def test_the_largest_difference_is_found_wherever_it_is(where, size):
    right = np.zeros((1, 2, 2))
    moved = right.copy()
    moved.flat[where] = -size
    assert metrics.max_abs_diff(moved, right) == size


def test_recovery_runs_from_the_confirmed_fault_to_the_first_right_token():
    reference = [(1,), (2,), (3,), (4,)]
    steps = [step(0, 8.0, [1]), step(1, 9.0, [2]), step(2, 14.0, [9]), step(3, 15.5, [4])]
    assert metrics.seconds_to_correct(steps, CONFIRMED, reference) == 5.5
    assert metrics.seconds_to_correct(steps[:3], CONFIRMED, reference) is None


def test_a_token_from_before_the_fault_is_no_recovery_even_if_recorded_after_it():
    reference = [(1,), (2,), (3,)]
    steps = [step(1, 10.2, [2]), step(2, 12.0, [3])]
    assert metrics.seconds_to_correct(steps, CONFIRMED, reference) == 2.0


def test_a_token_the_failure_free_run_never_reached_is_no_recovery():
    assert metrics.seconds_to_correct([step(2, 12.0, [3])], CONFIRMED, [(1,), (2,)]) is None


def test_only_a_confirmed_loss_of_a_server_counts_as_a_failure():
    rows = [
        CONFIRMED,
        {**CONFIRMED, "ok": False},
        {**CONFIRMED, "ok": None},
        {**CONFIRMED, "stage": "inject"},
        {**CONFIRMED, "fault": "restart"},
        {**CONFIRMED, "fault": "stop"},
    ]
    found = metrics.confirmed_failures(rows)
    assert [(row["fault"], row["t"]) for row in found] == [("kill", CONFIRMED["t"]), ("stop", CONFIRMED["t"])]
    assert [row["began_t"] for row in found] == [CONFIRMED["t"]] * 2


def test_the_clock_starts_before_the_fault_is_ordered_not_when_it_is_confirmed():
    """A client repairs what broke while the orchestrator is still looking at processes."""
    setup = {**CONFIRMED, "stage": "setup", "t": CONFIRMED["t"] - 0.5}
    other = {**CONFIRMED, "stage": "setup", "fault": "stop", "t": CONFIRMED["t"] - 0.1}
    [found] = metrics.confirmed_failures([other, setup, CONFIRMED])
    assert found["began_t"] == setup["t"]
    right = step(CONFIRMED["at_token"] or 0, CONFIRMED["t"] + 1.0, [7], 1.0)
    reference = [(7,)] * ((CONFIRMED["at_token"] or 0) + 1)
    assert metrics.seconds_to_correct([right], found, reference) == pytest.approx(1.5)


def test_the_floor_is_the_fastest_of_the_repeats_and_never_zero_for_missing():
    floors = [{"connect_s": 1.0, "prefill_s": p} for p in (1.0, 2.0, 30.0)] + [
        {"connect_s": 1.0, "prefill_s": None}
    ]
    assert metrics.floor_seconds(floors) == 2.0
    assert metrics.floor_seconds([]) is None


def test_a_stall_is_the_longest_step_after_the_first_fault():
    steps = [step(0, 9.0, [1], 50.0), step(1, 11.0, [1], 0.5), step(2, 12.0, [1], 3.0)]
    assert metrics.stall_seconds(steps, [CONFIRMED]) == 3.0
    assert metrics.stall_seconds(steps, []) is None
    assert metrics.stall_seconds(steps[:1], [CONFIRMED]) is None
