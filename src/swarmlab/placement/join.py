"""Choosing blocks for a joining server with rule (1) of Appendix D."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import width_in
from swarmlab.placement.rule import window_start
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
    return entering(values, server, target, policy, reason)


def entering(values: Floats, server: Server, target: Span, policy: str, reason: str) -> Decision:
    """The decision to serve ``target``, with what the swarm gains by it."""
    joined = values.copy()
    joined[target.start : target.end] += server.throughput_tps
    return Decision(
        moved=True,
        old=None,
        target=target,
        predicted_tps=float(joined.min()),
        expected_stay_tps=float(values.min()),
        policy=policy,
        reason=reason,
    )
