"""The window rule is exact: against its definition, against petals' own function, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmlab.placement import rule
from tests.placement.petals_views import petals_modules
from tests.placement.views import random_view

TINY = 2.0**-40
# few values, so that ties abound; neighbours in float; and values that differ only far below their size
TIED = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-52, 1.0 - 2**-53, 0.1 + 0.2, 0.3, TINY, 3e8])


def by_definition(values: list[float], width: int) -> int:
    windows = [sorted(values[start : start + width]) for start in range(len(values) - width + 1)]
    return windows.index(min(windows))


@settings(max_examples=600, deadline=None)
@given(st.data(), st.lists(TIED | st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_equals_the_definition(data: st.DataObject, values: list[float]):
    width = data.draw(st.integers(1, len(values)))
    expected = by_definition(values, width)
    assert rule.window_start(np.array(values), width) == expected
    assert rule.window_start_numpy(np.array(values), width) == expected


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.integers(0, 1), min_size=40, max_size=120))
def test_equals_the_definition_where_windows_tie_for_long(data: st.DataObject, bits: list[int]):
    width = data.draw(st.integers(1, len(bits)))
    values = np.array(bits, dtype=float)
    assert rule.window_start(values, width) == by_definition(values.tolist(), width)


def test_windows_with_many_equal_order_statistics():
    # the two ends hold the same 30 distinct values, so no early order statistic tells them apart
    values = np.concatenate([np.arange(30.0)[::-1], np.full(30, 99.0), np.arange(30.0)])
    assert rule.window_start(values, 30) == 0
    values[0] = 29.5  # the left end's largest value grows, all others tie
    assert rule.window_start(values, 30) == by_definition(values.tolist(), 30) == 60


def test_equals_petals_on_random_swarms():
    original = petals_modules().selection._choose_best_start
    rng = np.random.default_rng(0)
    for _ in range(1500):
        view = random_view(rng, max_blocks=80, max_servers=30)
        values = np.zeros(view.n_blocks)
        for record in view.servers:
            values[record.span.start : record.span.end] += record.throughput_tps
        width = int(rng.integers(1, view.n_blocks + 1))
        assert rule.window_start(values, width) == original(values, width)


@pytest.mark.parametrize("choose", [rule.window_start, rule.window_start_numpy])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 3, 5])
def test_refuses_values_that_cannot_be_ordered_or_summed(choose, bad: float, place: int):
    values = np.ones(6)
    values[place] = bad
    with pytest.raises(ValueError, match="not finite"):
        choose(values, 4)


@pytest.mark.parametrize("width", [0, -1, 7])
def test_refuses_a_window_that_does_not_fit(width: int):
    with pytest.raises(ValueError, match="does not fit"):
        rule.window_start(np.ones(6), width)


def test_takes_any_layout_of_numbers():
    values = np.array([[5, 9], [1, 9], [1, 9], [4, 9]])
    assert rule.window_start(values[:, 0], 2) == 1  # strided integers


def test_works_without_compiled_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rule, "compiled", lambda: None)
    assert rule.window_start(np.array([3.0, 1.0, 1.0, 2.0]), 2) == 1
