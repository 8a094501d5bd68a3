"""Which cells +exp=recovery_speed has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmlab.errors import BadInput

MOST_FAILED = 2  # of the three spans of the swarm, the first and the last


@dataclass
class SpeedSettings:
    """The cells of a run: every number of positions with every number of failed spans.

    :param histories: positions that are cached when servers die
    :param failed: spans whose servers die at the same moment
    :param repeats: failures per cell and arm
    """

    histories: list[int] = field(default_factory=lambda: [10, 100, 500])
    failed: list[int] = field(default_factory=lambda: [1, 2])
    repeats: int = 5


def check(speed: SpeedSettings) -> None:
    """
    :raises BadInput: if no grid follows from it
    """
    for name, least, most in (("histories", 2, None), ("failed", 1, MOST_FAILED)):
        values = getattr(speed, name)
        fits = all(value >= least and (most is None or value <= most) for value in values)
        if not values or not fits or len(set(values)) < len(values):
            allowed = f"one or more numbers of at least {least}, each once"
            raise BadInput(f"speed.{name}", values, allowed if most is None else f"{allowed}, at most {most}")
    if speed.repeats < 1:
        raise BadInput("speed.repeats", speed.repeats, "at least 1")


@dataclass(frozen=True)
class Cell:
    """A failure of ``n_failed`` spans with ``history`` positions cached."""

    history: int
    n_failed: int

    @property
    def name(self) -> str:
        return f"{self.history}_tokens_{self.n_failed}_span{'' if self.n_failed == 1 else 's'}"


def cells(histories: Sequence[int], failed: Sequence[int]) -> list[Cell]:
    """In the order in which they are run."""
    return [Cell(history, n_failed) for history in histories for n_failed in failed]
