"""Balancing of joining servers only (Appendix E): rule (1) at the start, then never a move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.placement.join import join_decision
from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


@dataclass(frozen=True)
class JoinOnly:
    """Chooses well once."""

    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 5.0
    name: str = "join_only"

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        del rng
        return join_decision(view.without([server.peer_id]), server, self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        del rng
        return stay(server, float(layout_of(view).throughput_tps.min()), self.name, "never moves", memory)
