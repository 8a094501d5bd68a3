"""What each possible move of one server is worth, and how urgently others would make one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.softmin import SHARPNESS, utilities
from swarmlab.types import ServerState, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Layout
    from swarmlab.placement.policy import Server
    from swarmlab.placement.situation import Situation

MAX_EXPONENT = 700.0  # beyond, exp overflows a float


@dataclass(frozen=True)
class Price:
    """What throughput is worth against what moving costs.

    :param horizon_s: how long a gain is expected to last
    :param per_load: share of the mean throughput that a second of loading costs, beyond what the swarm loses
    """

    horizon_s: float = 600.0
    per_load: float = 0.03


@dataclass(frozen=True, eq=False)
class Moves:
    """What one server could do; arrays have one entry per start.

    :param worth: tokens gained over the horizon, less the tokens that reloading costs; 0 for staying
    :param safe: False where the move would leave a block unserved while it lasts
    :param seen: the situation that this was reckoned from, and ``rate_tps`` what the server adds to a block
    """

    old: Span
    worth: Floats
    blocks_loaded: Floats
    safe: NDArray[np.bool_]
    seen: Situation
    rate_tps: float

    def swarm_tps(self, start: int) -> float:
        """Throughput of the weakest block with the server at ``start``."""
        joined = self.seen.committed_tps.copy()
        joined[start : start + self.old.length] += self.rate_tps
        return float(joined.min())

    def completes(self, start: int) -> bool:
        """Has every block somebody with the server at ``start``?"""
        committed = self.seen.committed
        return bool(committed[:start].all() and committed[start + self.old.length :].all())

    def span(self, start: int) -> Span:
        return Span(start, start + self.old.length)

    def best(self, *, shunned: tuple[Span, ...] = (), near_equal: float = 0.02) -> Span | None:
        """The safe move that is worth most; among near-equal ones the one that loads least; None if none gains.

        :param shunned: spans not to go to
        :param near_equal: difference in worth, as a share of the best, that does not matter
        """
        worth = np.where(self.safe, self.worth, -np.inf)
        worth[self.old.start] = -np.inf
        for span in shunned:
            if span.length == self.old.length:
                worth[span.start] = -np.inf
        best = float(worth.max())
        if best <= 0:
            return None
        good = np.flatnonzero(worth >= best * (1 - near_equal))
        return self.span(int(good[np.argmin(self.blocks_loaded[good])]))


def moves(seen: Situation, server: Server, old: Span, price: Price) -> Moves:
    """All moves of a server that serves ``old``, priced by the seconds that its own loading takes.

    :param seen: the situation of this server, itself left out
    """
    width, rate = old.length, min(server.throughput_tps, seen.cap_tps)
    n_blocks = len(seen.committed_tps)
    starts = np.arange(n_blocks - width + 1)
    loaded = np.minimum(np.abs(starts - old.start), width).astype(np.float64)
    if not server.load.keeps_overlap:
        loaded[loaded > 0] = width
    load_s = np.where(loaded > 0, server.load.s_per_move + server.load.s_per_block * loaded, 0.0)
    mean = (float(seen.committed_tps.sum()) + rate * width) / n_blocks
    gain = np.zeros(len(starts))
    if mean > 0:
        reached = utilities(seen.committed_tps, rate, width, SHARPNESS / mean)
        gain = reached - reached[old.start]
    lost, safe = _while_loading(seen, old, rate, starts, keeps_overlap=server.load.keeps_overlap)
    worth = gain * price.horizon_s - lost * load_s - price.per_load * mean * load_s
    return Moves(old, worth, loaded, safe, seen, rate)


def _while_loading(
    seen: Situation, old: Span, rate: float, starts: NDArray[np.int64], *, keeps_overlap: bool
) -> tuple[Floats, NDArray[np.bool_]]:
    # For each start: what the served bottleneck loses while blocks are loaded, and whether all stay served.
    others, staying = seen.serving_tps[old.start : old.end], seen.staying[old.start : old.end]
    served = seen.serving_tps.copy()
    served[old.start : old.end] += rate
    bottleneck = float(served.min())
    # going right by d drops the first d blocks, going left the last d; a full reload drops all
    dropped = (
        np.minimum(np.abs(starts - old.start), old.length)
        if keeps_overlap
        else np.full(len(starts), old.length)
    )
    right = starts > old.start
    lowest = np.where(
        right, np.minimum.accumulate(others)[dropped - 1], np.minimum.accumulate(others[::-1])[dropped - 1]
    )
    fewest = np.where(
        right, np.minimum.accumulate(staying)[dropped - 1], np.minimum.accumulate(staying[::-1])[dropped - 1]
    )
    lost = np.maximum(0.0, bottleneck - lowest)
    safe = fewest > 0
    lost[old.start], safe[old.start] = 0.0, True
    return lost, safe


def rank(layout: Layout, seen: Situation, server: Server, old: Span) -> int:
    """How many other serving servers have more to gain for the swarm; equal ones in the order of their names.

    Every server can reckon this for all from its own view, so of many that see one gap only few go at a time.
    """
    rates = np.minimum(np.append(layout.tps, server.throughput_tps), seen.cap_tps)
    starts, ends = np.append(layout.starts, old.start), np.append(layout.ends, old.end)
    values = seen.committed_tps.copy()
    values[old.start : old.end] += rates[-1]
    beta = SHARPNESS / max(float(values.mean()), 1e-300)
    need = np.exp(-beta * (values - values.min()))
    sums = np.concatenate([[0.0], np.cumsum(need)])
    widths = ends - starts
    best = np.zeros(len(values) + 1)
    for width in np.unique(widths):
        best[width] = (sums[width:] - sums[:-width]).max()
    strength = np.minimum(beta * rates, MAX_EXPONENT)
    # need met at the best window, less the need that would arise in the window left behind
    appeal = -np.expm1(-strength) * (best[widths] - np.exp(strength) * (sums[ends] - sums[starts]))
    rivals = [
        i
        for i in np.flatnonzero(appeal[:-1] >= appeal[-1])
        if (record := layout.records[i]).state is ServerState.ONLINE
        and i not in seen.ahead
        and record.peer_id != server.peer_id
        and (appeal[i] > appeal[-1] or record.peer_id < server.peer_id)
    ]
    return len(rivals)
