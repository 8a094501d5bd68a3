"""Which cells are run, and which are computed."""

from __future__ import annotations

import math

import pytest

from swarmlab.analysis.failure_rates_grid import Cell, GridSettings, How, cells, check, decide
from swarmlab.errors import BadInput


def test_the_failure_free_cell_of_each_length_comes_first():
    found = cells([128, 1024], [0.01, 0.001])
    assert found == [
        Cell(128, 0.0), Cell(128, 0.001), Cell(128, 0.01), Cell(1024, 0.0), Cell(1024, 0.001), Cell(1024, 0.01),
    ]  # fmt: skip
    assert len({cell.name for cell in found}) == 6


@pytest.mark.parametrize(
    ("arm", "p", "expected_s", "how"),
    [
        ("restart", 0.0, None, How.MEASURED),
        ("restart", 0.0, 1e9, How.MEASURED),
        ("restart", 0.01, 59.0, How.MEASURED),
        ("restart", 0.01, 61.0, How.SIMULATED),
        ("restart", 0.01, 3600.0, How.SIMULATED),
        ("restart", 0.01, 3601.0, How.BOUNDED),
        ("restart", 0.01, math.inf, How.BOUNDED),
        ("swarmlab", 0.01, None, How.BOUNDED),
        ("petals", 0.01, None, How.BOUNDED),
    ],
)
def test_cells_beyond_the_budget_are_computed_and_hopeless_ones_watched_for_a_moment(arm, p, expected_s, how):
    assert decide(arm, Cell(128, p), expected_s, budget_s=60.0) is how


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lengths", []), ("lengths", [0]), ("lengths", [128, 128]), ("rates", [1.0]), ("rates", [-0.1]),
        ("rates", [float("nan")]), ("repeats", 0), ("budget_s", 0.0), ("bounded_s", float("inf")),
    ],
)  # fmt: skip
def test_a_grid_that_means_nothing_is_refused_by_name(field, value):
    grid = GridSettings()
    check(grid)
    setattr(grid, field, value)
    with pytest.raises(BadInput) as error:
        check(grid)
    assert error.value.field == f"rates.{field}"
