"""A swarm's view as arrays, built once per view however many servers look at it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swarmlab.placement.rule import compiled
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarmlab.types import ServerRecord, SwarmView

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
# Policies draw through the methods both have (shuffle, random); petals' own answers need the legacy one.
NO_PLACES, NO_RATES = np.empty(0, dtype=np.int64), np.empty(0)
Rng: TypeAlias = np.random.Generator | np.random.RandomState


@dataclass(frozen=True, eq=False)
class Layout:
    """The servers that hold or load blocks, in the order of their peer ids. Nobody may write into the arrays.

    :param records: one record per server; OFFLINE ones are left out
    :param throughput_tps: of each block, summed in the order of the peer ids
    """

    n_blocks: int
    records: tuple[ServerRecord, ...]
    starts: Ints
    ends: Ints
    tps: Floats
    throughput_tps: Floats

    def index(self, peer_id: str) -> int | None:
        """Where the server stands in the arrays; None if the view does not show it."""
        return self._places.get(peer_id)

    def place(self, peer_id: str) -> int:
        """Where the server stands, or would stand if the view showed it."""
        return bisect_left(self.records, peer_id, key=attrgetter("peer_id"))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {record.peer_id: i for i, record in enumerate(self.records)}


def layout_of(view: SwarmView) -> Layout:
    """The arrays of a view, kept with it: thousands of simulated servers may look at one view."""
    known = view.__dict__.get("_layout")
    if known is None:
        known = _build(view)
        object.__setattr__(view, "_layout", known)
    return known


def _build(view: SwarmView) -> Layout:
    offline = ServerState.OFFLINE
    records = tuple([record for record in view.servers if record.state is not offline])
    starts, ends, tps = spans_of(records)
    return Layout(view.n_blocks, records, starts, ends, tps, block_sums(starts, ends, tps, view.n_blocks))


def spans_of(records: Sequence[ServerRecord]) -> tuple[Ints, Ints, Floats]:
    """Where the spans start and end, and what each server announces."""
    if not records:
        return NO_PLACES, NO_PLACES, NO_RATES
    return (
        np.array([record.span.start for record in records], dtype=np.int64),
        np.array([record.span.end for record in records], dtype=np.int64),
        np.array([record.throughput_tps for record in records], dtype=np.float64),
    )


def block_sums(starts: Ints, ends: Ints, tps: Floats, n_blocks: int) -> Floats:
    """Throughput of every block, summed in the order of the servers: float sums depend on the order."""
    kernels = compiled()
    if kernels is not None:
        contiguous = (np.ascontiguousarray(values) for values in (starts, ends, tps))
        return kernels.block_sums(*contiguous, n_blocks)
    total = np.zeros(n_blocks)
    for start, end, rate in zip(starts.tolist(), ends.tolist(), tps.tolist(), strict=True):
        total[start:end] += rate
    return total
