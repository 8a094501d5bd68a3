"""Which cells of +exp=failure_rates are run and which are computed, decided from what was measured so far. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from swarmlab.errors import BadInput

HOUR_S = 3600.0  # the paper, too, gave up after an hour


@dataclass
class GridSettings:
    """The cells of a run.

    :param lengths: positions of a generation, its first one included
    :param rates: probabilities that one send of activations fails; 0 is always added
    :param repeats: generations per cell and arm where something can fail
    :param budget_s: longest expected generation that is run; cells beyond it are computed
    :param bounded_s: how long a generation is watched that will not finish
    """

    lengths: list[int] = field(default_factory=lambda: [128, 1024])
    rates: list[float] = field(default_factory=lambda: [0.0, 0.001, 0.01])
    repeats: int = 1
    budget_s: float = 40.0
    bounded_s: float = 10.0


def check(grid: GridSettings) -> None:
    """
    :raises BadInput: if no grid follows from it
    """
    if not grid.rates:
        raise BadInput("rates.rates", grid.rates, "one or more probabilities")
    if not grid.lengths or min(grid.lengths) < 1 or len(set(grid.lengths)) < len(grid.lengths):
        raise BadInput("rates.lengths", grid.lengths, "one or more numbers of positions, each once")
    if not all(0 <= p < 1 for p in grid.rates):
        raise BadInput("rates.rates", grid.rates, "probabilities from 0 to less than 1")
    if grid.repeats < 1:
        raise BadInput("rates.repeats", grid.repeats, "at least 1")
    for name in ("budget_s", "bounded_s"):
        if not 0 < getattr(grid, name) < float("inf"):
            raise BadInput(f"rates.{name}", getattr(grid, name), "a number above 0")


class How(StrEnum):
    """How a cell gets its number."""

    MEASURED = "measured"  # run to its end
    SIMULATED = "simulated"  # would end, but not within the budget: the closed form says when
    BOUNDED = "bounded"  # would not end within an hour, or at all: run for a moment to show it


@dataclass(frozen=True)
class Cell:
    """One failure rate at one length.

    :param p: probability that one send of activations fails
    """

    length: int
    p: float

    @property
    def name(self) -> str:
        return f"{self.length}_tokens_p_{self.p:g}"

    @property
    def baseline(self) -> str:
        """Name of the failure-free cell of the same length."""
        return Cell(self.length, 0.0).name


def cells(lengths: Sequence[int], rates: Sequence[float]) -> list[Cell]:
    """In the order in which they are run: of each length the failure-free cell first."""
    return [Cell(length, p) for length in lengths for p in sorted({0.0, *rates})]


def decide(arm: str, cell: Cell, expected_s: float | None, budget_s: float) -> How:
    """
    :param expected_s: of one generation; None if nothing says how long it takes
    :param budget_s: the longest that a generation may be expected to take and is run nevertheless
    """
    if cell.p == 0:
        return How.MEASURED  # everything else is measured against it
    if arm == "petals":
        return How.BOUNDED  # nothing says that it ends
    if expected_s is None or expected_s > HOUR_S:
        return How.BOUNDED
    return How.MEASURED if expected_s <= budget_s else How.SIMULATED
