"""What each possible move of one server is worth, and how urgently others would make one.

The loops are compiled (``move_kernels.py``, ``rival_kernels.py``); ``tests/placement/test_moves.py`` has them from
their definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.rule import loops
from swarmlab.placement.softmin import sharpness
from swarmlab.types import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swarmlab.placement.layout import Floats, Ints, Layout
    from swarmlab.placement.policy import Server
    from swarmlab.placement.situation import Situation


@dataclass(frozen=True)
class Price:
    """What throughput is worth against what moving costs.

    :param horizon_s: how long a gain is expected to last
    :param per_load: what a second of loading costs beyond what the swarm loses, as a share of the blocks' mean
        throughput: a server that loads is not there for the next gap
    :param per_load_most: the same as a share of one server's throughput (``Situation.grain_tps``), which is the limit
        in larger swarms: what one move can gain does not grow with the swarm, so its price must not either
    """

    horizon_s: float = 600.0
    per_load: float = 0.022
    per_load_most: float = 0.2

    def toll_tps(self, mean_tps: float, grain_tps: float) -> float:
        """The price of a second of loading in a swarm with ``mean_tps`` on each block."""
        return min(self.per_load * mean_tps, self.per_load_most * grain_tps)


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

    @property
    def mean_tps(self) -> float:
        """Mean throughput of the blocks, wherever the server is."""
        return mean_with(self.seen, self.rate_tps, self.old.length)

    def swarm_tps(self, start: int) -> float:
        """Throughput of the weakest block with the server at ``start``."""
        return loops().weakest_with(self.seen.committed_tps, start, self.old.length, self.rate_tps)

    def completes(self, start: int) -> bool:
        """Has every block somebody with the server at ``start``?"""
        return self._all_held(self.seen.committed, start)

    def completes_with_all(self, start: int) -> bool:
        """The same, once everybody who has announced a move has made it, those who did so later included."""
        return self._all_held(self.seen.gathered, start)

    def _all_held(self, holders: Ints, start: int) -> bool:
        return bool(holders[:start].all() and holders[start + self.old.length :].all())

    def span(self, start: int) -> Span:
        return Span(start, start + self.old.length)

    def best(
        self, *, shunned: tuple[Span, ...] = (), near_equal: float = 0.02, anywhere: bool = False
    ) -> Span | None:
        """The safe move that is worth most; among near-equal ones the one that loads least; None if none gains.

        :param shunned: spans not to go to
        :param near_equal: difference in worth, as a share of the best, that does not matter
        :param anywhere: moves that are not safe, too
        """
        starts = np.array([span.start for span in shunned if span.length == self.old.length], dtype=np.int64)
        start = loops().best_start(
            self.worth, self.blocks_loaded, self.safe | anywhere, self.old.start, starts, near_equal
        )
        return None if start < 0 else self.span(start)


def moves(seen: Situation, server: Server, old: Span, price: Price) -> Moves:
    """All moves of a server that serves ``old``, priced by the seconds that its own loading takes.

    Where a block would have nobody even after all announced moves, loading is for the gap that is there now: a price
    on it for the sake of the next one would leave a swarm with many gaps, each of little gain alone, broken for ever.

    :param seen: the situation of this server, itself left out
    """
    rate = min(server.throughput_tps, seen.cap_tps)
    mean = mean_with(seen, rate, old.length)
    toll_tps = _toll_tps(seen, old, price, mean)
    return priced(seen, server, old, sharpness(mean, seen.grain_tps), price.horizon_s, toll_tps)


def priced(
    seen: Situation, server: Server, old: Span, sharpness: float, horizon_s: float, toll_tps: float
) -> Moves:
    """All moves at a given sharpness of the soft minimum and price of a second of loading (tokens/s)."""
    rate, load = min(server.throughput_tps, seen.cap_tps), server.load
    count = len(seen.committed_tps) - old.length + 1
    worth, loaded, safe = np.empty(count), np.empty(count), np.empty(count, dtype=np.bool_)
    loops().price_moves(
        worth,
        loaded,
        safe,
        seen.committed_tps,
        seen.serving_tps,
        seen.staying,
        old.start,
        old.length,
        rate,
        load.s_per_block,
        load.s_per_move,
        load.keeps_overlap,
        sharpness,
        horizon_s,
        toll_tps,
    )
    return Moves(old, worth, loaded, safe, seen, rate)


def _toll_tps(seen: Situation, old: Span, price: Price, mean_tps: float) -> float:
    # none where a block would have nobody: see `moves`
    held = seen.committed > 0
    held[old.start : old.end] = True
    return price.toll_tps(mean_tps, seen.grain_tps) if held.all() else 0.0


def mean_with(seen: Situation, rate_tps: float, width: int) -> float:
    """Mean throughput of the blocks with a server of ``rate_tps`` on ``width`` of them."""
    return (float(seen.committed_tps.sum()) + rate_tps * width) / len(seen.committed_tps)


def rank(layout: Layout, seen: Situation, server: Server, old: Span, price: Price, at_most: int) -> int:
    """How many other serving servers have a move that is worth more; equal ones in the order of their names.

    Every server can reckon this for all from its own view, so of many that see one gap only few go at a time: those
    who gain the most for what they load, taken to load as fast as this one.

    :param at_most: counting ends here, which is soon where many would go
    """
    rate = min(server.throughput_tps, seen.cap_tps)
    values = seen.committed_tps.copy()
    values[old.start : old.end] += rate
    own, load, mean = layout.index(server.peer_id), server.load, float(values.mean())
    toll_tps = _toll_tps(seen, old, price, mean)
    return loops("rival").rivals(
        values,
        layout.starts,
        layout.ends,
        seen.rates_tps,
        seen.movable,
        -1 if own is None else own,
        layout.place(server.peer_id) if own is None else own,
        old.start,
        old.end,
        rate,
        sharpness(mean, seen.grain_tps),
        price.horizon_s,
        toll_tps * load.s_per_move,
        toll_tps * load.s_per_block,
        load.keeps_overlap,
        at_most,
    )
