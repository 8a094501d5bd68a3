"""A good placement of any number of servers within milliseconds to seconds, with a certified bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from swarmlab.placement.forecast import EPS, settle_round
from swarmlab.placement.problem import Placement, Problem
from swarmlab.placement.rule import compiled, window_start

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Ints

TAKEN_OUT = 3  # servers that one kick removes and puts back
MAX_SETTLING_ROUNDS = 20  # a kick settles for so many rounds at most


def good_placement(task: Problem, rng: np.random.Generator, *, kicks: int = 1000) -> Placement:
    """Greedy, then ``kicks`` attempts to take out a few servers and place them anew; the bound is the LP's.

    With 1,000 kicks it came within 0 to 4 % of the bound for 10 to 200 servers of 4 to 40 blocks out of 80, and
    found the proven optimum wherever that was known. Deterministic for a given generator.
    """
    count = len(task.peers)
    bound = relaxed_bound(task)
    if count == 0:
        return Placement(task.starts, bound, bound)
    starts = task.starts.copy()
    values = _greedy(task, starts)
    picks = np.array(
        [rng.choice(count, min(TAKEN_OUT, count), replace=False) for _ in range(kicks)], dtype=np.int64
    ).reshape(kicks, min(TAKEN_OUT, count))
    kernels = compiled()
    play = search if kernels is None else kernels.search
    play(values, starts, task.widths, task.tps, picks, EPS)
    swarm_tps = task.swarm_tps(starts)
    if swarm_tps < (present := task.swarm_tps(task.starts)):
        return Placement(task.starts, present, max(bound, present))
    return Placement(starts, swarm_tps, max(bound, swarm_tps))


def _greedy(task: Problem, starts: Ints) -> Floats:
    # The largest contributions first, each to its best window; fills `starts` and returns the throughputs.
    values = task.base_tps.copy()
    for i in np.argsort(-task.widths * task.tps, kind="stable"):
        width = int(task.widths[i])
        starts[i] = window_start(values, width)
        values[starts[i] : starts[i] + width] += task.tps[i]
    return values


def search(values: Floats, starts: Ints, lengths: Ints, tps: Floats, kicks: Ints, eps: float) -> None:
    """The search without compiled code: same moves, same answer, much slower. In place."""
    everybody = np.arange(len(starts))
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
        if sorted(trial_values) > sorted(values):
            values[:], starts[:] = trial_values, trial_starts


def relaxed_bound(task: Problem) -> float:
    """No placement can have more: the optimum if servers could be split over several places (an LP).

    Only the summed throughput of each width matters then, so the LP is small however many servers there are.
    """
    if not len(task.peers) or not task.tps.any():
        return float(task.base_tps.min())
    scale = float(task.tps.max())
    widths = np.unique(task.widths)
    masses = [float(task.tps[task.widths == width].sum()) / scale for width in widths]
    spans = [
        (group, start, width)
        for group, width in enumerate(widths)
        for start in range(task.n_blocks - width + 1)
    ]
    groups = np.array([group for group, _, _ in spans])
    cover = coverage(task.n_blocks, [(start, width, 1.0) for _, start, width in spans])
    splits = sparse.csr_array(
        (np.ones(len(spans)), (groups, np.arange(len(spans)))), (len(widths), len(spans) + 1)
    )
    cost = np.zeros(len(spans) + 1)
    cost[-1] = -1.0
    solved = linprog(cost, A_ub=-cover, b_ub=task.base_tps / scale, A_eq=splits, b_eq=masses, method="highs")
    simple = float((task.tps * task.widths).sum() + task.base_tps.sum()) / task.n_blocks
    return simple if solved.status != 0 else min(simple, -float(solved.fun) * scale)


def coverage(n_blocks: int, spans: list[tuple[int, int, float]]) -> sparse.csr_array:
    """Rows: blocks. Columns: spans as (start, width, weight), and last the throughput that every block must reach."""
    rows = np.concatenate(
        [np.arange(start, start + width) for start, width, _ in spans] + [np.arange(n_blocks)]
    )
    lengths = [width for _, width, _ in spans] + [n_blocks]
    columns = np.repeat(np.arange(len(spans) + 1), lengths)
    weights = np.repeat([weight for _, _, weight in spans] + [-1.0], lengths)
    return sparse.csr_array((weights, (rows, columns)), (n_blocks, len(spans) + 1))
