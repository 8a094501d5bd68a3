"""Compiled inner loops of the window rule, imported on first use: numba takes 0.3 s, its first build 5 s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Ints

MAX_TIED_VALUES = 16  # after so many equal order statistics, sorting both windows is cheaper than going on
MAX_SETTLING_ROUNDS = 20  # a search tries its next kick rather than settle for longer


@njit("UniTuple(float64, 2)(float64[::1], int64, int64, float64)", cache=True)
def _next_value(values: Floats, start: int, count: int, floor: float) -> tuple[float, float]:
    # Smallest value above `floor` among `count` values, and how many copies of it there are.
    smallest, copies = np.inf, 0.0
    for i in range(start, start + count):
        if floor < values[i] <= smallest:
            copies = copies + 1 if values[i] == smallest else 1.0
            smallest = values[i]
    return smallest, copies


@njit("boolean(float64[::1], int64, int64, int64)", cache=True)
def _is_smaller(values: Floats, first: int, second: int, width: int) -> bool:
    # Is sorted(window at `first`) lexicographically smaller than sorted(window at `second`)? Elements in both
    # windows cancel: the verdict lies at the smallest value whose number of copies differs.
    count = min(width, abs(first - second))
    shared = width - count
    mine, other = (first, second + shared) if first < second else (first + shared, second)
    floor = -np.inf
    for _ in range(MAX_TIED_VALUES):
        my_value, my_copies = _next_value(values, mine, count, floor)
        other_value, other_copies = _next_value(values, other, count, floor)
        if my_value != other_value:
            return my_value < other_value
        if my_copies != other_copies:
            return my_copies > other_copies
        if my_copies == 0:
            return False
        floor = my_value
    mine_sorted, other_sorted = np.sort(values[mine : mine + count]), np.sort(values[other : other + count])
    for i in range(count):
        if mine_sorted[i] != other_sorted[i]:
            return mine_sorted[i] < other_sorted[i]
    return False


@njit("int64(float64[::1], int64)", cache=True)
def window_start(values: Floats, width: int) -> int:
    """Leftmost start of the lexicographically smallest sorted window; -1 if a value is not finite."""
    for i in range(width):
        if values[i] - values[i] != 0:
            return -1
    best = 0  # leftmost start of the smallest window up to here
    candidate = 0  # leftmost start of the run of equal windows that the scan is in
    rose = False  # has the scan met a larger window since `best`?
    for start in range(1, values.size - width + 1):
        leaving, entering = values[start - 1], values[start + width - 1]
        if entering - entering != 0:
            return -1
        if entering < leaving:  # one element became smaller, so the whole window did
            candidate = start
        elif entering > leaving:
            if candidate != best:  # the scan leaves a local minimum
                if not rose or _is_smaller(values, candidate, best, width):
                    best = candidate
                candidate = best
            rose = True
    if candidate != best and (not rose or _is_smaller(values, candidate, best, width)):
        best = candidate
    return best


@njit("float64[::1](int64[::1], int64[::1], float64[::1], int64)", cache=True)
def block_sums(starts: Ints, ends: Ints, tps: Floats, n_blocks: int) -> Floats:
    """Throughput of every block, summed in the order of the servers."""
    total = np.zeros(n_blocks)
    for i in range(starts.size):
        for block in range(starts[i], ends[i]):
            total[block] += tps[i]
    return total


@njit("boolean(float64[::1], int64[::1], int64[::1], float64[::1], int64[::1], float64)", cache=True)
def settle_round(values: Floats, starts: Ints, lengths: Ints, tps: Floats, order: Ints, eps: float) -> bool:
    """Let each server in `order` take its best window once, in place; True if any of them moved."""
    moved = False
    for i in order:
        start, end = starts[i], starts[i] + lengths[i]
        lowered, returned = tps[i] * (1 + eps), tps[i] * eps
        for block in range(start, end):
            values[block] -= lowered
        new = window_start(values, int(lengths[i]))
        for block in range(start, end):
            values[block] += returned
        if new != start:
            starts[i] = new
            moved = True
        for block in range(new, new + lengths[i]):
            values[block] += tps[i]
    return moved


@njit("boolean(float64[::1], float64[::1])", cache=True)
def _is_better(new: Floats, old: Floats) -> bool:
    # Weakest block first: the placement whose sorted throughputs are lexicographically larger.
    for i in range(new.size):
        if new[i] != old[i]:
            return new[i] > old[i]
    return False


@njit("void(float64[::1], int64[::1], int64[::1], float64[::1], int64[:, ::1], float64)", cache=True)
def search(values: Floats, starts: Ints, lengths: Ints, tps: Floats, kicks: Ints, eps: float) -> None:
    """Take out the servers of each kick, put them back one by one, let all settle; keep what is better. In place."""
    everybody = np.arange(starts.size)
    ranked = np.sort(values)
    for kick in kicks:
        trial_values, trial_starts = values.copy(), starts.copy()
        for i in kick:
            trial_values[trial_starts[i] : trial_starts[i] + lengths[i]] -= tps[i]
        for i in kick:
            start = window_start(trial_values, int(lengths[i]))
            trial_starts[i] = start
            trial_values[start : start + lengths[i]] += tps[i]
        for _ in range(MAX_SETTLING_ROUNDS):
            if not settle_round(trial_values, trial_starts, lengths, tps, everybody, eps):
                break
        trial_ranked = np.sort(trial_values)
        if _is_better(trial_ranked, ranked):
            values[:], starts[:], ranked = trial_values, trial_starts, trial_ranked
