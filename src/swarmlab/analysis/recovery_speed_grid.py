"""Which cells +exp=recovery_speed has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarmlab.errors import BadInput

STANDBY = "swarmlab_standby"
MOST_FAILED = 2  # of the three spans of the swarm, the first and the last


@dataclass
class SpeedSettings:
    """The cells of a run: every number of positions with every number of failed spans.

    :param histories: positions that are cached when servers die
    :param failed: spans whose servers die at the same moment
    :param standby_histories: those at which warm standbys are tried, too
    :param repeats: failures per cell and arm
    """

    histories: list[int] = field(default_factory=lambda: [10, 100, 500])
    failed: list[int] = field(default_factory=lambda: [1, 2])
    standby_histories: list[int] = field(default_factory=lambda: [500])
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
    if not set(speed.standby_histories) <= set(speed.histories):
        allowed = f"some of speed.histories ({', '.join(map(str, speed.histories))})"
        raise BadInput("speed.standby_histories", speed.standby_histories, allowed)
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


def cells_of(arm: str, speed: Mapping[str, Any]) -> list[Cell]:
    """The cells of one arm.

    :param speed: the fields of ``SpeedSettings``
    """
    return cells(speed["standby_histories" if arm == STANDBY else "histories"], speed["failed"])
