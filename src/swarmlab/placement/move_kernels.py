"""Compiled inner loops of the swarmlab policy: what each move is worth.

Those that return nothing change their first arguments: an array that compiled code returns takes a microsecond to wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Ints

    Flags = NDArray[np.bool_]


@njit(
    "void(float64[::1], int64[::1], float64[::1], int64[::1], int64, int64, float64, boolean, int64[::1], int64[::1],"
    " float64[::1])",
    cache=True,
)
def others(
    committed_tps: Floats,
    committed: Ints,
    serving_tps: Floats,
    staying: Ints,
    start: int,
    end: int,
    rate: float,
    sure: bool,
    more_starts: Ints,
    more_ends: Ints,
    more_rates: Floats,
) -> None:
    """Make the sums of all those without a server on [start, end), who serves if `sure`, and with more to come."""
    for block in range(start, end):
        committed_tps[block] -= rate
        committed[block] -= 1
        if sure:
            serving_tps[block] -= rate
            staying[block] -= 1
    for i in range(more_starts.size):
        for block in range(more_starts[i], more_ends[i]):
            committed_tps[block] += more_rates[i]
            committed[block] += 1
    for block in range(committed.size):
        # what subtracting leaves of a block that nobody holds is float noise
        if committed[block] == 0 or committed_tps[block] < 0:
            committed_tps[block] = 0.0
        serving_tps[block] = max(serving_tps[block], 0.0)


@njit(
    "void(float64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1],"
    " boolean[::1])",
    cache=True,
)
def move(
    committed_tps: Floats,
    committed: Ints,
    staying: Ints,
    old_starts: Ints,
    old_ends: Ints,
    starts: Ints,
    ends: Ints,
    rates: Floats,
    sure: Flags,
) -> None:
    """Let servers go from their old spans to new ones; those that are `sure` serve the old ones."""
    for i in range(rates.size):
        for block in range(old_starts[i], old_ends[i]):
            committed_tps[block] -= rates[i]
            committed[block] -= 1
            if sure[i] and not starts[i] <= block < ends[i]:
                staying[block] -= 1
        for block in range(starts[i], ends[i]):
            committed_tps[block] += rates[i]
            committed[block] += 1


@njit("void(float64[::1], int64[::1], int64[::1], float64[::1])", cache=True)
def add(values: Floats, starts: Ints, ends: Ints, rates: Floats) -> None:
    """Let each block have more servers, in their order."""
    for i in range(rates.size):
        for block in range(starts[i], ends[i]):
            values[block] += rates[i]


@njit("boolean(float64[::1], float64[::1], int64[::1], int64[::1], float64[::1], float64)", cache=True)
def any_share(parts: Floats, totals: Floats, starts: Ints, ends: Ints, rates: Floats, share: float) -> bool:
    """Has some block a part that is this share of its total, once more servers are added to both?"""
    more = np.zeros(parts.size)
    for i in range(rates.size):
        for block in range(starts[i], ends[i]):
            more[block] += rates[i]
    for block in range(parts.size):
        part = parts[block] + more[block]
        if part > 0 and part >= share * (totals[block] + more[block]):
            return True
    return False


@njit("void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", cache=True)
def gather(holders: Ints, old_starts: Ints, old_ends: Ints, starts: Ints, ends: Ints) -> None:
    """Let servers go from their old spans to new ones, where only their number counts."""
    for i in range(starts.size):
        for block in range(old_starts[i], old_ends[i]):
            holders[block] -= 1
        for block in range(starts[i], ends[i]):
            holders[block] += 1


@njit("float64[::1](float64[::1], float64, int64, float64)", cache=True)
def utilities(values: Floats, rate: float, width: int, beta: float) -> Floats:
    """The soft minimum for each start at which a server could add `rate` to `width` blocks (see softmin.py)."""
    count, floor = values.size, values.min()
    weights = np.exp(-beta * (values - floor))  # how much each block is in need, 1 for the weakest
    before, after = np.zeros(count + 1), np.zeros(count + 1)
    for i in range(count):
        before[i + 1] = before[i] + weights[i]
        after[count - 1 - i] = after[count - i] + weights[count - 1 - i]
    eased = np.exp(-beta * rate)
    reached = np.empty(count - width + 1)
    for start in range(reached.size):
        # sums, not differences: the blocks outside may need far less than those inside
        inside = before[start + width] - before[start]
        reached[start] = (
            floor - np.log((before[start] + after[start + width] + eased * inside) / count) / beta
        )
    return reached


@njit(
    "void(float64[::1], float64[::1], boolean[::1], float64[::1], float64[::1], int64[::1], int64, int64, float64,"
    " float64, float64, boolean, float64, float64, float64)",
    cache=True,
)
def price_moves(
    worth: Floats,
    loaded: Floats,
    safe: Flags,
    committed_tps: Floats,
    serving_tps: Floats,
    staying: Ints,
    old: int,
    width: int,
    rate: float,
    s_per_block: float,
    s_per_move: float,
    keeps_overlap: bool,
    sharpness: float,
    horizon_s: float,
    toll_tps: float,
) -> None:
    """For each start: worth in tokens, blocks loaded, and whether all blocks stay served meanwhile."""
    n_blocks = committed_tps.size
    count = n_blocks - width + 1
    mean = (committed_tps.sum() + rate * width) / n_blocks
    gain = np.zeros(count)
    if mean > 0:
        reached = utilities(committed_tps, rate, width, sharpness / mean)
        gain = reached - reached[old]
    bottleneck = np.inf
    for block in range(n_blocks):
        bottleneck = min(bottleneck, serving_tps[block] + (rate if old <= block < old + width else 0.0))
    # the weakest and the least staffed of the first, or the last, d blocks of the old span
    first_tps, last_tps = np.full(width + 1, np.inf), np.full(width + 1, np.inf)
    first_n, last_n = np.full(width + 1, 1 << 40), np.full(width + 1, 1 << 40)
    for d in range(width):
        first_tps[d + 1] = min(first_tps[d], serving_tps[old + d])
        last_tps[d + 1] = min(last_tps[d], serving_tps[old + width - 1 - d])
        first_n[d + 1] = min(first_n[d], staying[old + d])
        last_n[d + 1] = min(last_n[d], staying[old + width - 1 - d])
    for start in range(count):
        if start == old:
            worth[start], loaded[start], safe[start] = 0.0, 0.0, True
            continue
        # going right by d drops the first d blocks, going left the last d; a full reload drops all
        shift = min(abs(start - old), width)
        dropped = shift if keeps_overlap else width
        loaded[start] = dropped
        lowest = first_tps[dropped] if start > old else last_tps[dropped]
        fewest = first_n[dropped] if start > old else last_n[dropped]
        load_s = s_per_move + s_per_block * dropped
        lost = max(0.0, bottleneck - lowest)
        worth[start] = gain[start] * horizon_s - lost * load_s - toll_tps * load_s
        safe[start] = fewest > 0


@njit("int64(float64[::1], float64[::1], boolean[::1], int64, int64[::1], float64)", cache=True)
def best_start(worth: Floats, loaded: Floats, safe: Flags, old: int, shunned: Ints, near_equal: float) -> int:
    """The safe start worth most, of near-equal ones the one that loads least, then the leftmost; -1 if none gains."""
    allowed = safe.copy()
    allowed[old] = False
    for start in shunned:
        allowed[start] = False
    most = -np.inf
    for start in range(worth.size):
        if allowed[start]:
            most = max(most, worth[start])
    if most <= 0:
        return -1
    best = -1
    for start in range(worth.size):
        if (
            allowed[start]
            and worth[start] >= most * (1 - near_equal)
            and (best < 0 or loaded[start] < loaded[best])
        ):
            best = start
    return best


@njit("float64(float64[::1], int64, int64, float64)", cache=True)
def weakest_with(values: Floats, start: int, width: int, rate: float) -> float:
    """The smallest value once `rate` is added to `width` blocks."""
    least = np.inf
    for block in range(values.size):
        least = min(least, values[block] + (rate if start <= block < start + width else 0.0))
    return least
