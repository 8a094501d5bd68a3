"""The best rule of earlier trials, to measure ours against: at each check the one move worth most by the soft minimum.

Rule "e3" of the churn trials that came before this package, written anew from its description: U(v) is the soft
minimum with beta = 30 / mean(v), and a move is worth (what U gains) x 600 s - (served bottleneck lost) x load time
- 0.03 mean(v) x load time. Nobody else's moves are foreseen. Its settings were the best of about 54 tried there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swarmlab.placement.grace import remember
from swarmlab.placement.join import soft_min_join
from swarmlab.placement.moves import mean_with, priced
from swarmlab.placement.policy import held_in, stay
from swarmlab.placement.situation import situation
from swarmlab.placement.softmin import SHARPNESS

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


@dataclass(frozen=True)
class GreedySoftMin:
    """Moves at once where that pays; the record that says so is out before anything is unloaded.

    Those who load count as arrived, so each sees where earlier ones are going. Blocks in both spans stay loaded, and a
    server that vanished is believed for a grace time. What is served is reckoned from the records.

    :param horizon_s: how long a gain is expected to last
    :param toll: price of a second of loading, as a share of the blocks' mean throughput
    :param grace_s: how long a vanished server is believed to be there
    """

    horizon_s: float = 600.0
    toll: float = 0.03
    grace_s: float = 90.0
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 5.0
    name: str = "greedy_soft_min"

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        """Where the soft minimum becomes largest.

        The description is silent on how servers join; under churn this serves the rule better than Appendix D's.
        """
        del rng
        return soft_min_join(view, server, self.name)

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        """The move worth most, if it is worth anything.

        :raises BadInput: if the server holds no span of this model
        """
        del rng
        old = held_in(view, server)
        known = remember(view, memory, grace_s=self.grace_s, own_peer=server.peer_id)
        seen = situation(view, server.peer_id, known, None)
        mean_tps = mean_with(seen, min(server.throughput_tps, seen.cap_tps), old.length)
        options = priced(seen, server, old, SHARPNESS, self.horizon_s, self.toll * mean_tps)
        present_tps = options.swarm_tps(old.start)
        target = options.best(near_equal=0.0, anywhere=True)
        if target is None:
            return stay(server, present_tps, self.name, "no move is worth its cost", known)
        reason = f"{target} is worth {options.worth[target.start]:.3g} tokens"
        at_rest = stay(server, present_tps, self.name, reason, known)
        return replace(at_rest, moved=True, target=target, predicted_tps=options.swarm_tps(target.start))
