"""The exact optimum, one contiguous span per server, and the cheapest way to come near it (MILPs, HiGHS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from swarmlab.errors import BadInput
from swarmlab.placement.forecast import EPS
from swarmlab.placement.problem import Placement, Problem
from swarmlab.placement.search import coverage, good_placement
from swarmlab.placement.softmin import beta_of, utilities

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Ints

SLACK = 1e-6  # HiGHS itself lets constraints be violated by 1e-7 or so
TOLERANCE = 1e-6  # a placement this near its bound is optimal
MOVES_PER_SERVER = 3  # a walk that has moved everybody so often leads nowhere
ROUNDING = 1e-3  # a bound on a whole number may lie this much above it


@dataclass(frozen=True, eq=False)
class Plan:
    """Where all servers should be, and what going there costs.

    :param blocks_loaded: blocks that have to be loaded in total
    :param least_blocks_loaded: no plan for the same throughput can load fewer (the solver's bound)
    """

    starts: Ints
    swarm_tps: float
    blocks_loaded: int
    least_blocks_loaded: int


def best_placement(
    task: Problem, *, time_limit_s: float = 60.0, seed: int = 0, kicks: int = 1000
) -> Placement:
    """The max-min placement; after the time limit the best found, with a bound that is certain either way.

    :param time_limit_s: seconds for the solver, which starts from what ``good_placement`` finds with ``kicks``
    """
    found = good_placement(task, np.random.default_rng(seed), kicks=kicks)
    if found.gap <= TOLERANCE or not len(task.peers):
        return found
    scale = float(task.tps.max())
    options = _Options.of(task, scale)
    count = options.count
    solved = milp(
        np.append(np.zeros(count), -1.0),
        integrality=np.append(np.ones(count), 0),
        bounds=Bounds(0, np.inf),  # each server is at one start, so no variable of it exceeds 1
        constraints=[
            _at_least(options.cover, -task.base_tps / scale),
            LinearConstraint(options.one_each, 1, 1),
            # only a placement better than the one at hand is of interest, and none is better than the bound
            LinearConstraint(
                np.append(np.zeros(count), 1.0),
                found.swarm_tps / scale * (1 - SLACK),
                found.bound_tps / scale,
            ),
        ],
        options={"time_limit": time_limit_s, "mip_rel_gap": TOLERANCE / 10},
    )
    bound = found.bound_tps
    if solved.mip_dual_bound is not None and np.isfinite(solved.mip_dual_bound):
        bound = min(bound, -float(solved.mip_dual_bound) * scale)
    starts, swarm_tps = found.starts, found.swarm_tps
    if solved.x is not None:
        exact = options.starts(solved.x)
        if task.swarm_tps(exact) > swarm_tps:
            starts, swarm_tps = exact, task.swarm_tps(exact)
    return Placement(starts, swarm_tps, max(bound, swarm_tps))


def cheapest_plan(
    task: Problem,
    target_tps: float,
    *,
    reaching: Ints,
    keeps_overlap: bool = True,
    time_limit_s: float | None = None,
    node_limit: int | None = None,
) -> Plan:
    """The placement with at least ``target_tps`` that loads the fewest blocks.

    :param target_tps: swarm throughput to reach, e.g. 0.95 of the optimum's; met to one part in a million
    :param reaching: any starts that reach it, e.g. those of ``best_placement``: the answer if no better is found
    :param keeps_overlap: count only blocks that a server does not hold yet; False: a server that moves loads all
    :param node_limit: a limit on the solver's work that, unlike seconds, gives the same answer each time
    :raises BadInput: if ``reaching`` does not reach the target
    """
    if task.swarm_tps(reaching) < target_tps * (1 - SLACK):
        raise BadInput(
            "target_tps", target_tps, f"at most the {task.swarm_tps(reaching):g} that is known to be possible"
        )
    if target_tps <= task.swarm_tps(task.starts):
        return Plan(task.starts, task.swarm_tps(task.starts), 0, 0)
    near = _few_moves(task, reaching, target_tps, keeps_overlap=keeps_overlap)
    options = _Options.of(task, scale := float(task.tps.max()))
    loads = options.loads(task, keeps_overlap=keeps_overlap)
    known = _loaded(task, near, keeps_overlap=keeps_overlap)
    limits = {"time_limit": time_limit_s, "node_limit": node_limit, "mip_rel_gap": 0.0}
    solved = milp(
        loads,
        integrality=np.ones(options.count),
        bounds=Bounds(0, 1),
        constraints=[
            _at_least(options.cover[:, :-1], (target_tps * (1 - SLACK) - task.base_tps) / scale),
            LinearConstraint(options.one_each[:, :-1], 1, 1),
            LinearConstraint(loads, 0, known),
        ],
        options={name: value for name, value in limits.items() if value is not None},
    )
    bound = solved.mip_dual_bound
    least = 0 if bound is None or not np.isfinite(bound) else int(np.ceil(max(0.0, float(bound)) - ROUNDING))
    starts, loaded = near, known
    if solved.x is not None:
        exact = options.starts(solved.x)
        cost = _loaded(task, exact, keeps_overlap=keeps_overlap)
        if cost < known and task.swarm_tps(exact) >= target_tps * (1 - 2 * SLACK):
            starts, loaded = exact, cost
    return Plan(starts, task.swarm_tps(starts), loaded, min(least, loaded))


def _at_least(rows: sparse.csr_array, floors: Any) -> LinearConstraint:
    return LinearConstraint(rows, floors, np.inf)


def _few_moves(task: Problem, reaching: Ints, target_tps: float, *, keeps_overlap: bool) -> Ints:
    # Two cheap plans without a solver: drawn back from `reaching`, and walked to from the present; the cheaper one.
    candidates = [_drawn_back(task, reaching, target_tps)]
    walked = _walked(task, target_tps)
    if walked is not None:
        candidates.append(_drawn_back(task, walked, target_tps))
    return min(candidates, key=lambda starts: _loaded(task, starts, keeps_overlap=keeps_overlap))


def _loaded(task: Problem, starts: Ints, *, keeps_overlap: bool) -> int:
    shift = np.abs(starts - task.starts)
    loaded = np.minimum(shift, task.widths) if keeps_overlap else np.where(shift > 0, task.widths, 0)
    return int(loaded.sum())


def _walked(task: Problem, target_tps: float) -> Ints | None:
    # Steepest ascent of the soft minimum per block loaded, one server at a time; None if it gets stuck.
    starts = task.starts.copy()
    values = task.throughput_tps(starts)
    beta = beta_of(values)
    for _ in range(MOVES_PER_SERVER * len(starts)):
        if values.min() >= target_tps:
            return starts
        best, best_gain = None, 0.0
        for i, (start, width, rate) in enumerate(
            zip(starts.tolist(), task.widths.tolist(), task.tps, strict=True)
        ):
            without = values.copy()
            without[start : start + width] -= rate
            reached = utilities(without, float(rate), width, beta)
            shift = np.abs(np.arange(len(reached)) - start)
            gains = (reached - reached[start]) / np.maximum(1, np.minimum(shift, width))
            new = int(gains.argmax())
            if gains[new] > best_gain + EPS * best_gain:
                best, best_gain = (i, new), float(gains[new])
        if best is None:
            return None
        starts[best[0]] = best[1]
        values = task.throughput_tps(starts)
    return None


def _drawn_back(task: Problem, starts: Ints, target_tps: float) -> Ints:
    # Bring each server as near to where it is now as the target allows, those that load most first.
    drawn = starts.copy()
    values = task.throughput_tps(drawn)
    for i in np.argsort(-np.minimum(np.abs(starts - task.starts), task.widths), kind="stable"):
        width, rate, old, new = int(task.widths[i]), task.tps[i], int(task.starts[i]), int(drawn[i])
        values[new : new + width] -= rate
        for start in range(old, new, 1 if new > old else -1):
            trial = values.copy()
            trial[start : start + width] += rate
            if trial.min() >= target_tps:
                drawn[i] = start
                break
        values[drawn[i] : drawn[i] + width] += rate
    return drawn


@dataclass(frozen=True, eq=False)
class _Options:
    """One 0-1 variable per server and start, and last the swarm throughput (in units of the largest server)."""

    servers: Ints
    offsets: Ints
    cover: sparse.csr_array
    one_each: sparse.csr_array

    @property
    def count(self) -> int:
        return len(self.servers)

    @classmethod
    def of(cls, task: Problem, scale: float) -> _Options:
        choices = [
            (server, start)
            for server, width in enumerate(task.widths)
            for start in range(task.n_blocks - width + 1)
        ]
        servers = np.array([server for server, _ in choices], dtype=np.int64)
        offsets = np.array([start for _, start in choices], dtype=np.int64)
        spans = [(start, int(task.widths[i]), float(task.tps[i]) / scale) for i, start in choices]
        one_each = sparse.csr_array(
            (np.ones(len(choices)), (servers, np.arange(len(choices)))), (len(task.peers), len(choices) + 1)
        )
        return cls(servers, offsets, coverage(task.n_blocks, spans), one_each)

    def starts(self, solution: Floats) -> Ints:
        """Starts of all servers from a solution, which may or may not end with the throughput."""
        placed = np.zeros(int(self.servers[-1]) + 1, dtype=np.int64)
        picked = np.round(solution[: self.count]) == 1
        placed[self.servers[picked]] = self.offsets[picked]
        return placed

    def loads(self, task: Problem, *, keeps_overlap: bool) -> Floats:
        old, widths = task.starts[self.servers], task.widths[self.servers]
        shift = np.abs(self.offsets - old)
        loaded = np.minimum(shift, widths) if keeps_overlap else np.where(shift > 0, widths, 0)
        return loaded.astype(np.float64)
