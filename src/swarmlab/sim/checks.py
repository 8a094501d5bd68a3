"""When a simulated server looks whether it should move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.placement.policy import wait_after_setbacks_s

if TYPE_CHECKING:
    from numpy.random import Generator

    from swarmlab.sim.settings import SimSettings


class CheckTimes:
    """Waits until the checks of one server, in seconds.

    :ivar setbacks: moves in a row that were not made
    """

    def __init__(self, settings: SimSettings, draws: Generator) -> None:
        self._mean_s, self._evenly, self._draws = settings.check_period_s, settings.check_evenly, draws
        self.setbacks = 0

    def first_s(self) -> float:
        """From the time when it begins to serve; servers that begin together do not check together."""
        return self._up_to(2 * self._mean_s if self._evenly else self._mean_s)

    def next_s(self) -> float:
        """From one check to the next, if the decision names no time."""
        return self._up_to(2 * self._mean_s) if self._evenly else self._mean_s

    def after_setbacks_s(self) -> float | None:
        """After moves that were not made; None if the last one was."""
        return wait_after_setbacks_s(self._mean_s, self.setbacks) if self.setbacks else None

    def _up_to(self, most_s: float) -> float:
        # what uniform(0, most_s) draws, in a fifth of its time
        return most_s * self._draws.random()
