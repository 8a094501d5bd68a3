"""Compiled inner loops of the swarmlab policy: whose move would be worth more than one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Ints

    Flags = NDArray[np.bool_]

MAX_EXPONENT = 700.0  # beyond, exp overflows a float


@njit(
    "float64(float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, float64, float64, float64,"
    " boolean, boolean)",
    cache=True,
)
def _worth_towards(
    excess: Floats,
    before: Floats,
    behind: Floats,
    tolls: Floats,
    start: int,
    end: int,
    rate: float,
    beta: float,
    horizon_s: float,
    keeps_overlap: bool,
    right: bool,
) -> float:
    # The best move of one server on [start, end) to one side, in tokens; what clients lose meanwhile is left out.
    # `before` is the need of all blocks before one, `behind` of it and all behind: sums, as differences would be noise.
    width, count, total = end - start, excess.size, behind[0]
    eased = np.exp(-beta * rate)
    arises, best = 0.0, 0.0
    for by in range(1, (count - end if right else start) + 1):
        if by <= width:
            block = start + by - 1 if right else end - by
            alone = -beta * (excess[block] - rate)
            arises += np.exp(min(alone, MAX_EXPONENT)) - np.exp(-beta * excess[block])
        shift = min(by, width)
        first, last = (end + by - shift, end + by) if right else (start - by, start - by + shift)
        after = before[first] + behind[last] + eased * (before[last] - before[first]) + arises
        if after < total:
            toll = tolls[shift if keeps_overlap else width]
            best = max(best, -np.log(after / total) / beta * horizon_s - toll)
    return best


@njit(
    "float64(float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, float64, float64, float64, boolean)",
    cache=True,
)
def _worth(
    excess: Floats,
    before: Floats,
    behind: Floats,
    tolls: Floats,
    start: int,
    end: int,
    rate: float,
    beta: float,
    horizon_s: float,
    keeps_overlap: bool,
) -> float:
    # The same to either side.
    return max(
        _worth_towards(
            excess, before, behind, tolls, start, end, rate, beta, horizon_s, keeps_overlap, False
        ),
        _worth_towards(excess, before, behind, tolls, start, end, rate, beta, horizon_s, keeps_overlap, True),
    )


@njit("float64(float64[::1], int64, float64[::1])", cache=True)
def _neediest(before: Floats, width: int, known: Floats) -> float:
    # The need in the neediest window of a width, reckoned when first asked for.
    if known[width] < 0:
        for first in range(before.size - width):
            known[width] = max(known[width], before[first + width] - before[first])
    return known[width]


@njit(
    "int64(float64[::1], int64[::1], int64[::1], float64[::1], boolean[::1], int64, int64, int64, int64, float64,"
    " float64, float64, float64, float64, boolean, int64)",
    cache=True,
)
def rivals(
    values: Floats,
    starts: Ints,
    ends: Ints,
    rates: Floats,
    may_move: Flags,
    own: int,
    place: int,
    start: int,
    end: int,
    rate: float,
    sharpness: float,
    horizon_s: float,
    toll_per_move: float,
    toll_per_block: float,
    keeps_overlap: bool,
    at_most: int,
) -> int:
    """How many servers that may move could do more by it than one on [start, end); equals at places before `place`.

    `values` counts everybody, the server itself included; that one is at place `own`, or -1. Where there are many it
    stops counting at `at_most`.
    """
    count = values.size
    beta = sharpness / max(values.mean(), 1e-300)
    excess = values - values.min()
    before, behind = np.zeros(count + 1), np.zeros(count + 1)
    for i in range(count):
        before[i + 1] = before[i] + np.exp(-beta * excess[i])
        behind[count - 1 - i] = behind[count - i] + np.exp(-beta * excess[count - 1 - i])
    tolls = np.full(count + 1, toll_per_move)
    for loaded in range(count + 1):
        tolls[loaded] += toll_per_block * loaded
    needs = np.full(count + 1, -1.0)

    own_worth = _worth(excess, before, behind, tolls, start, end, rate, beta, horizon_s, keeps_overlap)
    # a rival that would do as much must meet this need at least, whatever it leaves and loads
    least_met = behind[0] * -np.expm1(-beta * own_worth / horizon_s) * (1 - 1e-9)
    ahead = 0
    for i in range(starts.size):
        first, last, strength = starts[i], ends[i], rates[i]
        if not may_move[i] or i == own:
            continue
        if -np.expm1(-beta * strength) * _neediest(before, last - first, needs) < least_met:
            continue
        worth = _worth(excess, before, behind, tolls, first, last, strength, beta, horizon_s, keeps_overlap)
        if worth > own_worth or (worth == own_worth and i < place):
            ahead += 1
            if ahead == at_most:
                break
    return ahead
