"""Estimates with their uncertainty. Randomness always comes from a generator that the caller seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable


class Interval(NamedTuple):
    low: float
    high: float


def median(values: Iterable[float | None]) -> float | None:
    """Median of the numbers that are there; None if none is."""
    return quantile(values, 0.5)


def quantile(values: Iterable[float | None], q: float) -> float | None:
    """Quantile by linear interpolation; of a single number, that number; None without any."""
    known = finite(values)
    return float(np.quantile(known, q)) if known else None


def finite(values: Iterable[float | None]) -> list[float]:
    """The numbers that are there, missing and non-finite ones left out."""
    return [float(value) for value in values if value is not None and np.isfinite(value)]


def bootstrap_median(
    values: Iterable[float | None], rng: np.random.Generator, *, level: float = 0.95, resamples: int = 2000
) -> Interval | None:
    """Percentile bootstrap interval of the median; None with fewer than two numbers.

    :param rng: consumed; the same seed gives the same interval
    """
    known = np.asarray(finite(values))
    if known.size < 2:
        return None
    medians = np.median(rng.choice(known, size=(resamples, known.size), replace=True), axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
