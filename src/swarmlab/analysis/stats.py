"""Estimates with their uncertainty. Nothing here draws from global randomness: the same numbers, the same interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Statistic = Literal["median", "mean"]

LEVEL = 0.95
RESAMPLES = 2000
STATISTICS: dict[Statistic, Callable[..., Any]] = {"median": np.median, "mean": np.mean}


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval.

    :param low: None, as ``high``, where a single repeat tells nothing about the spread
    :param n: repeats, seeds or pairs behind it
    """

    value: float
    low: float | None
    high: float | None
    n: int

    def as_dict(self) -> dict[str, Any]:
        """For ``summary.json``."""
        return asdict(self)

    def words(self, form: str = ".3g") -> str:
        """``1.23 [1.1, 1.4] (n = 5)``; without an interval ``1.23 (n = 1)``."""
        spread = "" if self.low is None or self.high is None else f" [{self.low:{form}}, {self.high:{form}}]"
        return f"{self.value:{form}}{spread} (n = {self.n})"


def estimate(values: Iterable[float | None], statistic: Statistic = "median") -> Estimate | None:
    """Median or mean with its bootstrap interval; None if no number is there."""
    known = np.asarray(finite(values))
    if not known.size:
        return None
    return _with_interval(STATISTICS[statistic], known)


def beside(name: str, known: Estimate | None) -> dict[str, float | None]:
    """The interval as metrics beside that of the name: ``<name>_low`` and ``<name>_high``."""
    low, high = (None, None) if known is None else (known.low, known.high)
    return {f"{name}_low": low, f"{name}_high": high}


def paired_ratio(
    ours: Mapping[Any, float | None],
    theirs: Mapping[Any, float | None],
    statistic: Statistic = "mean",
) -> Estimate | None:
    """Effect of an arm as a ratio: the statistic of ours over that of theirs, pairs resampled together.

    :param ours: seed, or seed and scenario, to value; what only one of the two has is left out
    :return: None without a pair, or where theirs is zero
    """
    both = [
        (ours[key], theirs[key])
        for key in ours
        if key in theirs and len(finite((ours[key], theirs[key]))) == 2
    ]
    if not both:
        return None
    mine, other = np.asarray(both, dtype=float).T
    of = STATISTICS[statistic]

    def ratio(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return of(a, axis=axis) / of(b, axis=axis)

    return _with_interval(ratio, mine, other) if of(other) else None


def zero_count_bound(trials: int) -> float | None:
    """Largest rate that 95 % confidence allows when none of ``trials`` independent trials showed the event.

    The exact form of the rule of three (about 3 / trials for many); None without trials.
    """
    return 1.0 - (1.0 - LEVEL) ** (1.0 / trials) if trials > 0 else None


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


def _with_interval(of: Callable[..., Any], *samples: np.ndarray) -> Estimate:
    n, value = len(samples[0]), float(of(*samples))
    if n < 2:
        return Estimate(value, None, None, n)
    # percentiles: the corrected kinds are undefined for equal values, and for a median of few
    with np.errstate(invalid="ignore"):
        found = bootstrap(
            samples, of, paired=len(samples) > 1, vectorized=True, n_resamples=RESAMPLES, confidence_level=LEVEL,
            method="percentile", rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
    low, high = float(found.low), float(found.high)
    known = np.isfinite(low) and np.isfinite(high)  # a resample of zeros has no ratio
    return Estimate(value, low if known else None, high if known else None, n)
