"""Petals with PR 493: move only if the check says so three times in a row, over two to three minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput
from swarmlab.placement.memory import Memory
from swarmlab.placement.petals import Petals

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView

# PR 493: two more checks, each after 90 s plus a whole number of seconds drawn evenly from -30 to 10.
EXTRA_CHECKS = 2
BASE_WAIT_S, EARLIEST_S, LATEST_S = 90, -30, 10


@dataclass(frozen=True)
class Recheck:
    """What the original decides, believed after two further looks; the target is thrown away as before.

    :param time_scale: how many seconds of the pull request's waits pass in one
    """

    original: Petals = field(default_factory=Petals)
    time_scale: float = 1.0
    name: str = "recheck"

    def __post_init__(self) -> None:
        if not 0 < self.time_scale < float("inf"):
            raise BadInput("recheck.time_scale", self.time_scale, "a number above 0")

    @property
    def mean_check_period_s(self) -> float:
        return self.original.mean_check_period_s

    @property
    def mean_choice_delay_s(self) -> float:
        return self.original.mean_choice_delay_s

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        return replace(self.original.choose(view, server, rng), policy=self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        decision = replace(
            self.original.reconsider(view, server, None, rng), policy=self.name, memory=Memory()
        )
        confirmations = memory.confirmations if memory else 0
        if not decision.moved or confirmations == EXTRA_CHECKS:
            return decision
        wait_s = BASE_WAIT_S + math.floor(rng.uniform(EARLIEST_S, LATEST_S + 1))
        return replace(
            decision,
            moved=False,
            target=server.span,
            keeps_target=True,
            reason=f"{decision.reason}; looking again, {EXTRA_CHECKS - confirmations} to go",
            check_again_s=wait_s / self.time_scale,
            memory=Memory(confirmations=confirmations + 1),
        )
