"""A fixed span: ``--block_indices`` together with ``--balance_quality 0``, the reporter's own workaround."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput
from swarmlab.placement.join import entering
from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, Span, SwarmView


@dataclass(frozen=True)
class Pinned:
    """Serves the span it was given, whatever the swarm looks like."""

    span: Span
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 0.0
    name: str = "pinned"

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        """:raises BadInput: if the span is not in the model"""
        del rng
        if self.span.end > view.n_blocks:
            raise BadInput("pinned.span", str(self.span), f"blocks of the model, 0 to {view.n_blocks}")
        return entering(layout_of(view).throughput_tps, server.throughput_tps, self.span, self.name, "pinned")

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        del rng
        return stay(server, float(layout_of(view).throughput_tps.min()), self.name, "pinned", memory)
