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
SURE_EXPONENT = 300.0  # up to here a product of two exponentials is what the exponential of the sum is


@njit(
    "float64(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, float64, float64,"
    " boolean, boolean, float64)",
    cache=True,
)
def _left_towards(
    excess: Floats,
    needs: Floats,
    before: Floats,
    behind: Floats,
    prices: Floats,
    start: int,
    end: int,
    rate: float,
    beta: float,
    keeps_overlap: bool,
    right: bool,
    enough: float,
) -> float:
    # What share of all need the best move of one server on [start, end) to one side leaves, raised by the price of its
    # loading; 1 if none is worth it. What clients lose meanwhile is left out. Looks no further once below `enough`.
    # `before` is the need of all blocks before one, `behind` of it and all behind: sums, as differences would be noise.
    width, count, total = end - start, excess.size, behind[0]
    eased, strength = np.exp(-beta * rate), beta * rate
    lift = np.expm1(strength) if strength < SURE_EXPONENT else 0.0
    arises, best = 0.0, 1.0
    for by in range(1, (count - end if right else start) + 1):
        if by <= width:
            block = start + by - 1 if right else end - by
            need = needs[block]
            if strength < SURE_EXPONENT:
                arises += need * lift
            else:
                arises += np.exp(min(-beta * (excess[block] - rate), MAX_EXPONENT)) - need
        shift = min(by, width)
        first, last = (end + by - shift, end + by) if right else (start - by, start - by + shift)
        after = before[first] + behind[last] + eased * (before[last] - before[first]) + arises
        best = min(best, after / total * prices[shift if keeps_overlap else width])
        if best < enough:
            break
    return best


@njit(
    "float64(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, float64, float64,"
    " boolean, float64)",
    cache=True,
)
def _left(
    excess: Floats,
    needs: Floats,
    before: Floats,
    behind: Floats,
    prices: Floats,
    start: int,
    end: int,
    rate: float,
    beta: float,
    keeps_overlap: bool,
    enough: float,
) -> float:
    # The same to either side.
    left = _left_towards(
        excess, needs, before, behind, prices, start, end, rate, beta, keeps_overlap, False, enough
    )
    if left < enough:
        return left
    return min(
        left,
        _left_towards(
            excess, needs, before, behind, prices, start, end, rate, beta, keeps_overlap, True, enough
        ),
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
    needs = np.exp(-beta * excess)
    before, behind = np.zeros(count + 1), np.zeros(count + 1)
    for i in range(count):
        before[i + 1] = before[i] + needs[i]
        behind[count - 1 - i] = behind[count - i] + needs[count - 1 - i]
    # a move is worth -log(share of the need it leaves) / beta over the horizon, less its toll: the smaller the share
    # times exp(beta toll / horizon), the more, and nobody needs to take logarithms to compare two moves
    prices = np.empty(count + 1)
    for loaded in range(count + 1):
        toll = toll_per_move + toll_per_block * loaded
        prices[loaded] = np.exp(min(beta * toll / horizon_s, MAX_EXPONENT))
    neediest = np.full(count + 1, -1.0)

    own_left = _left(excess, needs, before, behind, prices, start, end, rate, beta, keeps_overlap, 0.0)
    # a rival that would do as much must meet this need at least, whatever it leaves and loads
    least_met = behind[0] * (1 - own_left) * (1 - 1e-9)
    ahead = 0
    for i in range(starts.size):
        first, last, strength = starts[i], ends[i], rates[i]
        if not may_move[i] or i == own:
            continue
        if -np.expm1(-beta * strength) * _neediest(before, last - first, neediest) < least_met:
            continue
        left = _left(
            excess, needs, before, behind, prices, first, last, strength, beta, keeps_overlap, own_left
        )
        if left < own_left or (left == own_left and i < place):
            ahead += 1
            if ahead == at_most:
                break
    return ahead
