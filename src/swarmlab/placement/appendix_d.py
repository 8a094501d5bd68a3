"""The rebalancing rule as Appendix D of arXiv 2312.08361 states it; what ships differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput
from swarmlab.placement.forecast import EPS, Outcome, forecast, most_possible
from swarmlab.placement.join import join_decision
from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


@dataclass(frozen=True)
class AppendixD:
    """Moves to its simulated target if the settled swarm would be better than the present one by ``p``.

    Against petals 2.2.0.post1: the target is kept, the threshold is a gain of ``p`` (0.75 there: a gain of
    a third), and leaving a block unserved is not forbidden.

    :param p: least relative gain; the paper recommends 0.2 and draws 0.01 as well
    :param mean_check_period_s: Appendix E checks each minute
    """

    p: float = 0.2
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 5.0
    name: str = "appendix_d"

    def __post_init__(self) -> None:
        if not 0 <= self.p < float("inf"):
            raise BadInput("appendix_d.p", self.p, "a relative gain, 0 or more")

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        del rng
        return join_decision(view.without([server.peer_id]), server, self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        layout = layout_of(view)
        peer = layout.index(server.peer_id)
        present = float(layout.throughput_tps.min())
        if peer is None:
            return stay(server, present, self.name, "its own records are missing from the view", memory)
        if (most := most_possible(layout)) < (1 + self.p) * present:
            return stay(
                server, present, self.name, f"no moves can give more than {most:.6g} tokens/s", memory
            )
        seen = forecast(layout, peer, rng, keep_connected=False)
        if seen.outcome is not Outcome.SETTLED:
            return stay(server, present, self.name, seen.outcome.value, memory)
        # EPS keeps float noise from looking like a gain when p is 0 or the swarm's throughput is
        gains = seen.settled_tps > EPS and seen.settled_tps >= (1 + self.p) * seen.present_tps + EPS
        reason = f"settling would give {seen.settled_tps:.6g} after {seen.present_tps:.6g} tokens/s"
        decision = stay(server, present, self.name, reason, memory)
        if not gains or seen.target == server.span:
            return decision
        return replace(decision, moved=True, target=seen.target, predicted_tps=seen.settled_tps)
