"""Balance quality: present swarm throughput over what moving servers could reach. Three flavours, never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.forecast import Outcome, first_seen, forecast, settle
from swarmlab.placement.layout import layout_of
from swarmlab.placement.optimum import best_placement
from swarmlab.placement.problem import problem_of
from swarmlab.placement.search import good_placement

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.types import SwarmView


@dataclass(frozen=True)
class Quality:
    """A quality with its parts, in tokens/s.

    :param share: present over reachable; 1 where nothing better was found, also in a swarm that can serve nothing
    :param bound_tps: what is certainly unreachable beyond; equal to ``reachable_tps`` where it is exact
    """

    flavour: str
    share: float
    present_tps: float
    reachable_tps: float
    bound_tps: float


def petals_quality(view: SwarmView, peer_id: str, rng: Rng) -> Quality | None:
    """What this server of an unmodified Petals would compute; None where it would simulate nothing.

    One random simulation that starts with this server's move, so two servers, or two draws, may disagree.
    """
    layout = layout_of(view)
    peer = layout.index(peer_id)
    if peer is None:
        return None
    seen = forecast(layout, peer, rng, keep_connected=True)
    if seen.outcome is not Outcome.SETTLED:
        return None
    return _quality("petals", seen.present_tps, seen.settled_tps, seen.settled_tps)


def appendix_d_quality(view: SwarmView, rng: Rng) -> Quality:
    """Against the throughput after all servers have settled with the paper's rule, in one random order."""
    layout = layout_of(view)
    values, starts = layout.throughput_tps.copy(), layout.starts.copy()
    settle(values, starts, layout.ends - layout.starts, layout.tps, listed=first_seen(layout), rng=rng)
    settled = float(values.min())
    return _quality("appendix_d", float(layout.throughput_tps.min()), settled, settled)


def optimal_quality(
    view: SwarmView, *, time_limit_s: float = 0.0, seed: int = 0, kicks: int = 1000
) -> Quality:
    """Against the best placement of the same servers, found within limits and bounded from above.

    :param time_limit_s: seconds for the exact solver; 0 leaves it to the search, which is nearly as good
    """
    task = problem_of(view)
    if time_limit_s > 0:
        best = best_placement(task, time_limit_s=time_limit_s, seed=seed, kicks=kicks)
    else:
        best = good_placement(task, np.random.default_rng(seed), kicks=kicks)
    return _quality("optimal", task.swarm_tps(task.starts), best.swarm_tps, best.bound_tps)


def _quality(flavour: str, present: float, reachable: float, bound: float) -> Quality:
    share = 1.0 if reachable <= present else present / reachable
    return Quality(flavour, share, present, max(reachable, present), max(bound, present))
