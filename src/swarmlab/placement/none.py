"""No balancing at all (Appendix E's lowest curve): a random place at the start, then never a move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.placement.join import entering
from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay, width_in
from swarmlab.types import Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


@dataclass(frozen=True)
class NoBalancing:
    """Takes a uniformly random interval of blocks when it joins and stays there."""

    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 0.0
    name: str = "none"

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        width = width_in(view, server)
        start = int(rng.random() * (view.n_blocks - width + 1))
        values = layout_of(view).throughput_tps
        return entering(
            values, server.throughput_tps, Span(start, start + width), self.name, "drawn at random"
        )

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        del rng
        return stay(server, float(layout_of(view).throughput_tps.min()), self.name, "never moves", memory)
