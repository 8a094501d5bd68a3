from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.analysis.stats import Estimate, estimate, median, paired_ratio, quantile, zero_count_bound


def test_quantiles_leave_out_what_is_missing():
    assert median([3.0, None, 1.0, float("nan")]) == 2.0
    assert median([]) is None
    assert quantile([5.0], 0.95) == 5.0


@pytest.mark.parametrize("statistic", ["median", "mean"])
def test_an_interval_is_the_same_whatever_the_global_generator_does(statistic):
    values = np.random.default_rng(0).normal(size=40)
    np.random.seed(1)  # noqa: NPY002  the global generator must not matter
    first = estimate(values, statistic)
    np.random.seed(2)  # noqa: NPY002
    assert estimate(values, statistic) == first
    assert first is not None
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.value < first.high


def test_the_interval_of_a_mean_covers_it_about_as_often_as_it_says():
    rng, found = np.random.default_rng(5), 0
    for _ in range(200):
        got = estimate(rng.exponential(size=30), "mean")
        assert got is not None
        assert got.low is not None
        assert got.high is not None
        found += got.low <= 1.0 <= got.high
    assert 0.85 <= found / 200 <= 0.99


def test_one_number_has_no_interval_and_none_has_no_estimate():
    assert estimate([2.0, None]) == Estimate(2.0, None, None, 1)
    assert estimate([None, float("nan")]) is None


def test_equal_numbers_have_an_interval_without_width():
    assert estimate([3.0] * 5) == Estimate(3.0, 3.0, 3.0, 5)


def test_a_ratio_is_taken_over_pairs_so_that_what_they_share_does_not_widen_it():
    theirs = {seed: 10.0 ** (seed % 4) for seed in range(20)}
    ours = {seed: 1.5 * value for seed, value in theirs.items()}
    got = paired_ratio(ours, theirs)
    assert got is not None
    assert (got.value, got.low, got.high) == pytest.approx((1.5, 1.5, 1.5))
    assert got.n == 20


def test_a_ratio_leaves_out_what_has_no_pair():
    got = paired_ratio({1: 2.0, 2: 4.0, 3: None, 4: 100.0}, {1: 1.0, 2: 2.0, 3: 1.0})
    assert got is not None
    assert (got.value, got.n) == (2.0, 2)


def test_a_ratio_to_nothing_is_none_and_a_resample_of_zeros_leaves_no_interval():
    assert paired_ratio({1: 2.0}, {1: 0.0}) is None
    assert paired_ratio({}, {}) is None
    got = paired_ratio({1: 2.0, 2: 2.0}, {1: 0.0, 2: 1.0})
    assert got == Estimate(4.0, None, None, 2)


@given(st.integers(20, 10**6))
def test_the_bound_of_a_zero_count_is_nearly_the_rule_of_three(trials):
    bound = zero_count_bound(trials)
    assert bound is not None
    assert 0.92 * 3 / trials < bound < 3 / trials


def test_no_trials_bound_nothing():
    assert zero_count_bound(0) is None


@pytest.mark.parametrize(
    ("got", "words"),
    [(Estimate(1.234, 1.0, 2.0, 5), "1.23 [1, 2] (n = 5)"), (Estimate(1.234, None, None, 1), "1.23 (n = 1)")],
)
def test_words_never_leave_the_spread_out(got, words):
    assert got.words() == words
