"""The simulation behind Petals' rebalancing: what if this server moved, and then everybody who gains?

Appendix D of arXiv 2312.08361, as petals 2.2.0.post1 runs it (the order of its float operations included).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.rule import compiled, window_start
from swarmlab.types import Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Ints, Layout, Rng

# petals takes away a little more than a server's throughput, so that on near-ties its present place wins.
EPS = 1e-3
# Every move enlarges the sorted throughputs, so settling ends; this only bounds what float noise could do.
MAX_ROUNDS = 1000


class Outcome(Enum):
    """How far the simulation went."""

    DISJOINT = "without this server some block would be unserved"
    BEST_PLACE = "this server is at its best place already"
    SETTLED = "everybody settled after the move"


@dataclass(frozen=True)
class Forecast:
    """What the simulation found.

    :param target: the place that the rule gives this server now
    :param present_tps: swarm throughput as seen
    :param settled_tps: swarm throughput after all have settled; the present one if nothing was simulated
    """

    outcome: Outcome
    target: Span
    present_tps: float
    settled_tps: float


def forecast(layout: Layout, peer: int, rng: Rng, *, keep_connected: bool) -> Forecast:
    """Simulate that server ``peer`` takes its best place and then all servers do, in random order.

    :param keep_connected: stop if taking the server away leaves a block with nobody (petals' PR 210)
    """
    values = layout.throughput_tps.copy()
    present = float(values.min())
    start, end, rate = int(layout.starts[peer]), int(layout.ends[peer]), float(layout.tps[peer])
    old = Span(start, end)
    values[start:end] -= rate * (1 + EPS)
    if keep_connected and present > EPS and values.min() <= 0:
        return Forecast(Outcome.DISJOINT, old, present, present)
    new = window_start(values, old.length)
    if new == start:
        return Forecast(Outcome.BEST_PLACE, old, present, present)
    target = Span(new, new + old.length)
    values[start:end] += rate * EPS
    values[new : target.end] += rate
    starts = layout.starts.copy()
    starts[peer] = new
    settle(values, starts, layout.ends - layout.starts, layout.tps, listed=first_seen(layout), rng=rng)
    return Forecast(Outcome.SETTLED, target, present, float(values.min()))


def most_possible(layout: Layout) -> float:
    """Swarm throughput that no settling can pass: moves only shift throughput, and the least is at most the mean.

    Where that is not enough for a move, nothing has to be simulated: in a swarm of a thousand servers, hardly ever.
    """
    return float(layout.throughput_tps.mean())


def first_seen(layout: Layout) -> Ints:
    """The servers in the order in which a reader of the blocks meets them, as petals lists them."""
    return np.argsort(layout.starts, kind="stable")


def settle(values: Floats, starts: Ints, lengths: Ints, tps: Floats, *, listed: Ints, rng: Rng) -> None:
    """Let all servers take their best windows, in a new order each round, until nobody moves. In place.

    :param values: throughput of each block with every server at its start
    :param listed: the order that each round's shuffle begins with
    """
    kernels = compiled()
    play = settle_round if kernels is None else kernels.settle_round
    for _ in range(MAX_ROUNDS):
        order = listed.copy()
        rng.shuffle(order)
        if not play(values, starts, lengths, tps, order, EPS):
            return


def settle_round(values: Floats, starts: Ints, lengths: Ints, tps: Floats, order: Ints, eps: float) -> bool:
    """One round without compiled code: each server takes its best window; True if any of them moved."""
    moved = False
    for i in order:
        start, end = starts[i], starts[i] + lengths[i]
        values[start:end] -= tps[i] * (1 + eps)
        new = window_start(values, int(lengths[i]))
        values[start:end] += tps[i] * eps
        moved |= bool(new != start)
        starts[i] = new
        values[new : new + lengths[i]] += tps[i]
    return moved
