"""An arm that pays for its reloads but knows more than any server can: what good news would be worth.

It is no bound. It prices moves as swarmlab does and makes one at a time, each the best of one server with all earlier
ones seen; it announces nothing and waits for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from swarmlab.placement.moves import Price, moves
from swarmlab.placement.policy import stay
from swarmlab.placement.situation import situation
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.sim.dht import Dht
from swarmlab.types import SwarmView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.sim.population import Member
    from swarmlab.types import Decision, ServerRecord

ORACLE = "oracle"
LOOK_S = 30.0  # its servers look this often
FORESIGHT_S = 600.0  # servers count with the share of this time for which they will be there


@dataclass(frozen=True)
class Oracle:
    """Makes a move as soon as it is worth its cost.

    :param ends_s: when each server will be gone, filled in by the world (s, simulated)
    """

    ends_s: dict[str, float] = field(default_factory=dict, repr=False)
    price: Price = field(default_factory=Price)
    mean_check_period_s: float = LOOK_S
    mean_choice_delay_s: float = 0.0
    name: str = ORACLE

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        return replace(Swarmlab().choose(view, server, rng), policy=self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        del memory, rng
        old = server.span
        assert old is not None
        left_s = self.ends_s.get(server.peer_id, math.inf) - view.seen_at_s
        price = replace(self.price, horizon_s=min(self.price.horizon_s, left_s))
        options = moves(situation(view, server.peer_id, None, None), server, old, price)
        target = options.best(anywhere=not options.completes(old.start))
        at_rest = replace(
            stay(server, options.swarm_tps(old.start), self.name, "no move is worth its cost"),
            check_again_s=LOOK_S,
        )
        if target is None:
            return at_rest
        worth = options.worth[target.start]
        predicted_tps = options.swarm_tps(target.start)
        return replace(
            at_rest,
            moved=True,
            target=target,
            predicted_tps=predicted_tps,
            reason=f"worth {worth:.3g} tokens",
        )


@dataclass
class Truth(Dht):
    """Shows at once what is so, and what will be: each server with its throughput averaged over ``FORESIGHT_S``.

    :param present: who is in the swarm
    :param ends_s: when each will be gone; kept up to date by whoever looks
    """

    present: Mapping[str, Member] = field(default_factory=dict)
    ends_s: dict[str, float] = field(default_factory=dict)

    def view(self, now_s: float, readers: str = "servers") -> SwarmView:
        seen = super().view(now_s, readers)
        for name, member in self.present.items():
            self.ends_s[name] = member.leaves_s(now_s)
        shown = [
            replace(record, throughput_tps=record.throughput_tps * min(1.0, self._left_s(record, now_s) / FORESIGHT_S))
            for record in seen.servers
            if record.peer_id in self.present
        ]  # fmt: skip
        return SwarmView(self.n_blocks, tuple(shown), seen_at_s=now_s)

    def _left_s(self, record: ServerRecord, now_s: float) -> float:
        return max(0.0, self.ends_s[record.peer_id] - now_s)
