"""Placing all servers at once: the question that `search` answers fast and `optimum` exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.errors import BadInput
from swarmlab.placement.layout import Floats, Ints, block_sums, layout_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarmlab.types import SwarmView


@dataclass(frozen=True, eq=False)
class Problem:
    """Servers that each hold one run of blocks; which starts make the weakest block strongest?

    :param peers: names, in the order of the arrays
    :param widths: blocks each server holds
    :param tps: tokens/s each server adds to its blocks
    :param starts: where the servers are now
    :param base_tps: throughput that each block has from servers that are not to be moved
    """

    n_blocks: int
    peers: tuple[str, ...]
    widths: Ints
    tps: Floats
    starts: Ints
    base_tps: Floats

    def __post_init__(self) -> None:
        if self.widths.size and (self.widths.min() < 1 or self.widths.max() > self.n_blocks):
            raise BadInput("problem.widths", self.widths.tolist(), f"1 to {self.n_blocks} blocks")
        if not np.isfinite(self.tps).all() or (self.tps < 0).any():
            raise BadInput("problem.tps", self.tps.tolist(), "finite tokens/s, 0 or more")

    def throughput_tps(self, starts: Ints) -> Floats:
        """Throughput of every block if the servers are at ``starts``."""
        return self.base_tps + block_sums(starts, starts + self.widths, self.tps, self.n_blocks)

    def swarm_tps(self, starts: Ints) -> float:
        """Throughput of the weakest block."""
        return float(self.throughput_tps(starts).min())


def problem_of(view: SwarmView) -> Problem:
    """The servers that a view shows serving or loading, with the widths of their spans."""
    layout = layout_of(view)
    peers = tuple(record.peer_id for record in layout.records)
    return Problem(
        view.n_blocks, peers, layout.ends - layout.starts, layout.tps, layout.starts, np.zeros(view.n_blocks)
    )


def problem(
    n_blocks: int,
    widths: Sequence[int],
    tps: Sequence[float],
    starts: Sequence[int] | None = None,
    base_tps: Sequence[float] | None = None,
) -> Problem:
    """A problem from plain numbers; servers are named by their place, and stand at block 0 if not told."""
    peers = tuple(str(i) for i in range(len(widths)))
    placed = np.zeros(len(widths)) if starts is None else starts
    return Problem(
        n_blocks,
        peers,
        np.array(widths, dtype=np.int64),
        np.array(tps, dtype=np.float64),
        np.array(placed, dtype=np.int64),
        np.zeros(n_blocks) if base_tps is None else np.array(base_tps, dtype=np.float64),
    )


@dataclass(frozen=True, eq=False)
class Placement:
    """An answer, with what is certain about it.

    :param starts: first block of each server, in the order of the problem
    :param swarm_tps: throughput of the weakest block
    :param bound_tps: no placement can be better than this
    """

    starts: Ints
    swarm_tps: float
    bound_tps: float

    @property
    def gap(self) -> float:
        """At most this share of the bound is missing; 0 is proven optimal."""
        return 0.0 if self.bound_tps <= 0 else max(0.0, 1 - self.swarm_tps / self.bound_tps)
