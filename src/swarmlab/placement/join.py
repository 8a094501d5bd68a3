"""Choosing blocks for a joining server: with rule (1) of Appendix D, or by the soft minimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.layout import layout_of
from swarmlab.placement.moves import mean_with
from swarmlab.placement.policy import width_in
from swarmlab.placement.rule import window_start
from swarmlab.placement.situation import situation
from swarmlab.placement.softmin import sharpness, utilities
from swarmlab.types import Decision, Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats
    from swarmlab.placement.policy import Server
    from swarmlab.types import SwarmView


def join_decision(view: SwarmView, server: Server, policy: str) -> Decision:
    """The window whose weakest blocks are weakest, counting servers that serve and servers that load."""
    values = layout_of(view).throughput_tps
    start = window_start(values, width_in(view, server))
    target = Span(start, start + width_in(view, server))
    reason = f"weakest block of the window has {values[start : target.end].min():.6g} tokens/s"
    return entering(values, server.throughput_tps, target, policy, reason)


def soft_min_join(view: SwarmView, server: Server, policy: str) -> Decision:
    """Where the soft minimum becomes largest, counting loading and announced servers as arrived."""
    seen = situation(view, server.peer_id, None, None)
    width, rate = width_in(view, server), min(server.throughput_tps, seen.cap_tps)
    values, mean = seen.committed_tps, mean_with(seen, rate, width)
    if mean > 0 and rate > 0:
        reached = utilities(values, rate, width, sharpness(mean, seen.grain_tps) / mean)
        start = int(np.flatnonzero(reached >= reached.max() - 1e-9 * mean)[0])
    else:
        start = window_start(values, width)
    target = Span(start, start + width)
    return entering(values, rate, target, policy, f"blocks {target} need throughput most")


def entering(values: Floats, rate_tps: float, target: Span, policy: str, reason: str) -> Decision:
    """The decision to serve ``target``, with what the swarm gains by it."""
    joined = values.copy()
    joined[target.start : target.end] += rate_tps
    return Decision(
        moved=True,
        old=None,
        target=target,
        predicted_tps=float(joined.min()),
        expected_stay_tps=float(values.min()),
        policy=policy,
        reason=reason,
    )
