"""The exact optimum, the search, the bound and the cheapest plan against brute force on tiny swarms."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from swarmlab.errors import BadInput
from swarmlab.placement import search as search_module
from swarmlab.placement.optimum import best_placement, cheapest_plan
from swarmlab.placement.problem import Problem, problem, problem_of
from swarmlab.placement.search import good_placement, relaxed_bound
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

NEARLY = 1 - 2e-6  # the solver's tolerance


def random_problem(rng: np.random.Generator, *, max_blocks: int = 9, max_servers: int = 4) -> Problem:
    n_blocks = int(rng.integers(1, max_blocks + 1))
    count = int(rng.integers(1, max_servers + 1))
    widths = rng.integers(1, n_blocks + 1, count)
    tps = rng.integers(1, 5, count).astype(float) if rng.random() < 0.5 else rng.lognormal(7, 1, count)
    return problem(
        n_blocks, widths.tolist(), tps.tolist(), [int(rng.integers(0, n_blocks - w + 1)) for w in widths]
    )


def all_starts(task: Problem) -> list[np.ndarray]:
    ranges = [range(task.n_blocks - int(width) + 1) for width in task.widths]
    return [np.array(starts) for starts in product(*ranges)]


def loaded(task: Problem, starts: np.ndarray, *, keeps_overlap: bool) -> int:
    total = 0
    for old, new, width in zip(task.starts.tolist(), starts.tolist(), task.widths.tolist(), strict=True):
        overlap = Span(old, old + width).overlap(Span(new, new + width))
        total += 0 if old == new else width - overlap * keeps_overlap
    return total


def test_the_optimum_is_what_brute_force_finds():
    rng = np.random.default_rng(0)
    for _ in range(60):
        task = random_problem(rng)
        best = max(task.swarm_tps(starts) for starts in all_starts(task))
        found = best_placement(task, time_limit_s=20, kicks=3)
        assert found.swarm_tps == pytest.approx(best, rel=1e-9)
        assert found.swarm_tps == task.swarm_tps(found.starts)
        assert best * (1 - 1e-9) <= found.bound_tps <= best / NEARLY + 1e-9


def test_the_relaxed_bound_is_never_below_the_optimum():
    rng = np.random.default_rng(1)
    for _ in range(100):
        task = random_problem(rng)
        best = max(task.swarm_tps(starts) for starts in all_starts(task))
        bound = relaxed_bound(task)
        assert best * (1 - 1e-9) <= bound <= (task.tps * task.widths).sum() / task.n_blocks * (1 + 1e-9)


def test_the_relaxed_bound_sees_what_the_sum_does_not():
    # two servers of 2 blocks on 3: the middle block takes both, the ends get one each, and the sum says 4/3
    assert relaxed_bound(problem(3, [2, 2], [1.0, 1.0])) == pytest.approx(1.0)


def test_the_search_finds_the_optimum_of_tiny_swarms_and_is_never_worse_than_the_present():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(60):
        task = random_problem(rng)
        best = max(task.swarm_tps(starts) for starts in all_starts(task))
        found = good_placement(task, np.random.default_rng(0), kicks=50)
        assert task.swarm_tps(task.starts) <= found.swarm_tps <= best
        assert found.swarm_tps == task.swarm_tps(found.starts)
        hits += found.swarm_tps == best
    assert hits >= 57


def test_the_search_is_near_its_bound_for_large_swarms():
    rng = np.random.default_rng(3)
    task = problem(80, rng.integers(4, 41, 300).tolist(), rng.lognormal(7, 1, 300).tolist())
    assert good_placement(task, rng, kicks=100).gap < 0.03


def test_the_search_without_compiled_code_gives_the_same_placement(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(4)
    task = problem(20, rng.integers(2, 9, 8).tolist(), rng.lognormal(7, 1, 8).tolist())
    compiled = good_placement(task, np.random.default_rng(0), kicks=20)
    monkeypatch.setattr(search_module, "compiled", lambda: None)
    plain = good_placement(task, np.random.default_rng(0), kicks=20)
    assert compiled.starts.tolist() == plain.starts.tolist()


@pytest.mark.parametrize("keeps_overlap", [True, False])
@pytest.mark.parametrize("share", [0.8, 1.0])
def test_the_cheapest_plan_is_what_brute_force_finds(keeps_overlap: bool, share: float):
    rng = np.random.default_rng(5)
    for _ in range(40):
        task = random_problem(rng)
        options = all_starts(task)
        best = max(options, key=task.swarm_tps)
        target = share * task.swarm_tps(best)
        cheapest = min(
            loaded(task, s, keeps_overlap=keeps_overlap) for s in options if task.swarm_tps(s) >= target
        )
        plan = cheapest_plan(task, target, reaching=best, keeps_overlap=keeps_overlap)
        assert plan.blocks_loaded == plan.least_blocks_loaded == cheapest
        assert loaded(task, plan.starts, keeps_overlap=keeps_overlap) == cheapest
        assert task.swarm_tps(plan.starts) == plan.swarm_tps >= target * NEARLY


def test_without_time_for_the_solver_the_plan_still_reaches_the_target():
    rng = np.random.default_rng(6)
    for _ in range(20):
        task = random_problem(rng, max_blocks=40, max_servers=20)
        found = good_placement(task, np.random.default_rng(0), kicks=50)
        plan = cheapest_plan(task, 0.9 * found.swarm_tps, reaching=found.starts, node_limit=0)
        assert plan.swarm_tps >= 0.9 * found.swarm_tps * NEARLY
        assert (
            plan.least_blocks_loaded <= plan.blocks_loaded <= loaded(task, found.starts, keeps_overlap=True)
        )


def test_a_good_swarm_needs_no_plan():
    task = problem(4, [2, 2], [1.0, 1.0], [0, 2])
    plan = cheapest_plan(task, 1.0, reaching=np.array([0, 2]))
    assert (plan.blocks_loaded, plan.swarm_tps, plan.starts.tolist()) == (0, 1.0, [0, 2])


def test_a_target_beyond_what_is_known_to_be_possible_is_refused():
    task = problem(4, [2, 2], [1.0, 1.0], [0, 0])
    with pytest.raises(BadInput, match="target_tps"):
        cheapest_plan(task, 1.1, reaching=np.array([0, 2]))


def test_only_servers_that_hold_blocks_are_placed():
    view = SwarmView(
        4,
        (
            ServerRecord("b", Span(0, 2), 1.0),
            ServerRecord("a", Span(1, 4), 2.0, ServerState.JOINING),
            ServerRecord("c", Span(0, 4), 9.0, ServerState.OFFLINE),
        ),
    )
    task = problem_of(view)
    assert task.peers == ("a", "b")
    assert task.widths.tolist() == [3, 2]
    assert task.starts.tolist() == [1, 0]


def test_an_empty_or_idle_swarm_has_throughput_zero():
    assert best_placement(problem(4, [], [])).bound_tps == 0
    idle = best_placement(problem(4, [2], [0.0]))
    assert (idle.swarm_tps, idle.gap) == (0.0, 0.0)
    short = best_placement(problem(4, [2], [5.0]))
    assert (short.swarm_tps, short.bound_tps) == (0.0, pytest.approx(0.0, abs=1e-5))


@pytest.mark.parametrize(
    ("widths", "tps"), [([5], [1.0]), ([0], [1.0]), ([1], [-1.0]), ([1], [float("nan")])]
)
def test_impossible_servers_are_refused(widths: list[int], tps: list[float]):
    with pytest.raises(BadInput):
        problem(4, widths, tps)


def test_servers_that_are_not_to_be_moved_count_all_the_same():
    rng = np.random.default_rng(7)
    for _ in range(40):
        task = random_problem(rng)
        base = rng.integers(0, 3, task.n_blocks).astype(float) * float(task.tps.max())
        task = problem(
            task.n_blocks, task.widths.tolist(), task.tps.tolist(), task.starts.tolist(), base.tolist()
        )
        best = max(all_starts(task), key=task.swarm_tps)
        found = best_placement(task, time_limit_s=20, kicks=3)
        assert found.swarm_tps == pytest.approx(task.swarm_tps(best), rel=1e-9)
        assert found.bound_tps == pytest.approx(task.swarm_tps(best), rel=3e-6, abs=1e-6)
        cheapest = min(
            loaded(task, s, keeps_overlap=True)
            for s in all_starts(task)
            if task.swarm_tps(s) == task.swarm_tps(best)
        )
        assert cheapest_plan(task, task.swarm_tps(best), reaching=best).blocks_loaded == cheapest
