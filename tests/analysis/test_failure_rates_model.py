"""The closed form against a generation that is played message by message."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swarmlab.analysis import failure_rates_model as model
from swarmlab.analysis.failure_rates_model import SENDS, Costs
from swarmlab.analysis.paper_table1 import RATES, paper_cell, paper_ratio

LENGTH, RUNS = 25, 1000


def the(arm, length, p):
    cell = paper_cell(arm, length, p)
    assert cell is not None
    return cell


def play(arm, length, p, rng):
    """Steps run and failures met by one generation."""
    steps = failures = position = 0
    while position < length:
        steps += 1
        if arm == "swarmlab":  # the send that failed is repeated until it succeeds; the step goes on
            failures += int((rng.geometric(1 - p, SENDS) - 1).sum())
            position += 1
        elif (rng.random(SENDS) >= p).all():
            position += 1
        else:
            failures += 1
            position = 0 if arm == "restart" else position
    return steps, failures


@pytest.mark.parametrize("arm", ["restart", "cacheless", "swarmlab"])
@pytest.mark.parametrize("p", [0.001, 0.01, 0.02])
def test_expected_steps_and_failures_are_those_of_a_played_generation(arm, p):
    rng = np.random.default_rng(5)
    played = np.array([play(arm, LENGTH, p, rng) for _ in range(RUNS)])
    mean, error = played.mean(axis=0), played.std(axis=0) / math.sqrt(RUNS)
    failures = model.expected_failures(arm, LENGTH, p)
    steps = model.expected_s(arm, LENGTH, p, Costs(step_s=1.0))
    assert abs(mean[0] - steps) <= 5 * error[0] + 1e-9
    assert abs(mean[1] - failures) <= 5 * error[1]


def test_without_failures_a_generation_takes_its_steps():
    for arm in ("restart", "cacheless", "swarmlab"):
        assert model.expected_s(arm, 128, 0.0, Costs(0.5, 7.0, 7.0)) == pytest.approx(64.0)
        assert model.expected_failures(arm, 128, 0.0) == 0


def test_a_failure_costs_a_constant_and_its_history():
    costs = Costs(step_s=0.0, failure_s=2.0, failure_token_s=0.1)
    n_failures = 100 * SENDS * 0.01 / 0.99
    assert model.expected_s("swarmlab", 100, 0.01, costs) == pytest.approx(n_failures * (2.0 + 0.1 * 50.5))


def test_what_cannot_finish_takes_for_ever_rather_than_an_error():
    assert model.expected_s("restart", 100_000, 0.1, Costs(1.0, 1.0)) == math.inf
    assert model.expected_s("petals", 128, 0.01, Costs(1.0)) is None


@pytest.mark.parametrize(("length", "p"), [(128, 1e-4), (128, 1e-3), (128, 1e-2), (1024, 1e-4), (1024, 1e-3)])
def test_the_papers_restarts_follow_the_closed_form_with_five_sends(length, p):
    expected = length / model.steps_with_restarts(length, p)
    paper = paper_ratio("restart", length, p)
    assert expected == pytest.approx(paper, rel=0.06)


def test_the_paper_marks_what_it_did_not_finish():
    assert the("restart", 1024, 1e-2).steps_per_s is None
    assert paper_ratio("restart", 1024, 1e-2) == 0
    assert paper_ratio("swarmlab", 1024, 1e-2) == pytest.approx(2.17 / 10.7)
    assert paper_cell("petals", 128, 1e-2) is None
    assert paper_cell("swarmlab", 64, 1e-2) is None
    confirmed = [
        (arm, length, p)
        for arm in ("restart", "cacheless", "swarmlab")
        for length in (128, 1024)
        for p in RATES
        if the(arm, length, p).source == "confirmed"
    ]
    assert len(confirmed) == 4


def test_costs_of_failures_are_fitted():
    histories = [10, 100, 500, 1000]
    seconds = [0.2 + 0.001 * history for history in histories]
    assert model.fit_failure_costs(histories, seconds) == pytest.approx((0.2, 0.001))
    assert model.fit_failure_costs([], []) == (0.0, 0.0)
    assert model.fit_failure_costs([5], [0.3]) == (0.3, 0.0)
    assert model.fit_failure_costs([10, 20], [0.4, 0.2]) == pytest.approx((0.3, 0.0)), "no negative slope"
    constant, slope = model.fit_failure_costs([10, 20], [0.1, 0.3])
    assert constant == 0.0, "no negative constant"
    assert slope > 0
