"""How long a generation takes when messages are lost, in closed form, from what a step and a failure cost. Pure.

A step of a chain of n stages has n + 1 sends: to each stage, and from the last one back to the client. Each fails with
probability p, so a step passes with probability q = (1 - p)^(n + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

N_STAGES = 4
SENDS = N_STAGES + 1


@dataclass(frozen=True)
class Costs:
    """What one arm's steps and failures cost at one length.

    :param step_s: a step of a failure-free generation, mean over its positions
    :param failure_s: what each failure adds
    :param failure_token_s: ... and for each position that is in the history then
    """

    step_s: float
    failure_s: float = 0.0
    failure_token_s: float = 0.0


def steps_with_restarts(length: int, p: float) -> float:
    """Expected steps until ``length`` pass in a row, failed ones counted whole; infinite if it overflows."""
    q = (1 - p) ** SENDS
    if p == 0:
        return float(length)
    return _failed_runs(length, p) / (1 - q)


def _failed_runs(length: int, p: float) -> float:
    """Expected failures until ``length`` steps pass in a row: q^-length - 1."""
    try:
        return math.expm1(-length * SENDS * math.log1p(-p))
    except OverflowError:
        return math.inf


def expected_failures(arm: str, length: int, p: float) -> float:
    """Failures that a generation of ``length`` positions meets until it is done."""
    if arm == "restart":
        return _failed_runs(length, p)
    if arm == "cacheless":
        return length * ((1 - p) ** -SENDS - 1)
    return length * SENDS * p / (1 - p)  # only the send that failed is repeated


def expected_s(arm: str, length: int, p: float, costs: Costs) -> float | None:
    """Seconds that a generation of ``length`` positions is expected to take; None for an arm without a model."""
    failures = expected_failures(arm, length, p)
    if arm == "restart":
        return steps_with_restarts(length, p) * costs.step_s + failures * costs.failure_s
    if arm == "cacheless":
        return (length + failures) * costs.step_s + failures * costs.failure_s
    if arm == "swarmlab":
        history = (length + 1) / 2  # mean over the positions at which it can fail
        return length * costs.step_s + failures * (costs.failure_s + costs.failure_token_s * history)
    return None


def fit_failure_costs(histories: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds per failure and per position of its history, by least squares, neither below 0.

    :param histories: positions replayed
    :param seconds: that the recovery took
    """
    if not seconds:
        return 0.0, 0.0
    mean = float(np.mean(seconds))
    if len(set(histories)) < 2:
        return mean, 0.0
    slope, constant = np.polyfit(histories, seconds, 1)
    if slope <= 0:
        return mean, 0.0
    if constant < 0:
        weights = np.asarray(histories, dtype=float)
        return 0.0, float(weights @ np.asarray(seconds) / (weights @ weights))
    return float(constant), float(slope)
