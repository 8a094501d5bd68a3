"""The original: what an unmodified Petals 2.2.0.post1 server decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swarmlab.placement.forecast import EPS, Forecast, Outcome, forecast, most_possible
from swarmlab.placement.join import join_decision
from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


@dataclass(frozen=True)
class Petals:
    """Moves if a simulation finds the swarm well below what it could be; the target is then thrown away.

    After unloading, the server waits a random time and chooses again with the joining rule on a fresh view,
    where it may find its old place the best: so it reloads what it had (petals' issue 389).

    :param balance_quality: move if present / simulated throughput is below this; above 1 means always
    :param mean_check_period_s: ``--mean_balance_check_period``, default of petals' command line
    :param mean_choice_delay_s: ``mean_block_selection_delay`` of petals' server
    """

    balance_quality: float = 0.75
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 5.0
    name: str = "petals"

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        """The joining rule on all records, its own old ones included."""
        del rng
        return join_decision(view, server, self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        """Petals' check; where the view lacks its own records, petals stops with an error, this stays.

        Where no order of moves could make it move, ``rng`` is left alone; petals would shuffle for the same answer.
        """
        layout = layout_of(view)
        peer = layout.index(server.peer_id)
        present = float(layout.throughput_tps.min())
        if self.balance_quality > 1:
            chosen = join_decision(view, server, self.name)
            return replace(
                chosen, moved=True, old=server.span, keeps_target=False, reason="told to move always"
            )
        if peer is None:
            return stay(server, present, self.name, "its own records are missing from the view", memory)
        if present >= self.balance_quality * (most := most_possible(layout)):
            reason = f"balance quality at least {present / max(most, EPS):.1%}, whoever moved"
            return stay(server, present, self.name, reason, memory)
        seen = forecast(layout, peer, rng, keep_connected=True)
        moved, reason = self._judge(seen)
        decision = stay(server, present, self.name, reason, memory)
        if not moved:
            return decision
        return replace(
            decision, moved=True, target=seen.target, predicted_tps=seen.settled_tps, keeps_target=False
        )

    def _judge(self, seen: Forecast) -> tuple[bool, str]:
        if seen.outcome is not Outcome.SETTLED:
            return False, seen.outcome.value
        if seen.settled_tps < seen.present_tps or seen.settled_tps < EPS:
            return False, f"settling would end at {seen.settled_tps:.6g} tokens/s"
        quality = seen.present_tps / seen.settled_tps
        if quality < self.balance_quality - EPS:
            return True, f"balance quality {quality:.1%}, below {self.balance_quality:.0%}"
        return False, f"balance quality {quality:.1%}"
