"""One plan for a small swarm, the same at every server that sees the same: who moves where, loading the least.

With a handful of servers no single move may help although two together would; the rule alone gets stuck there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.layout import block_sums
from swarmlab.placement.optimum import cheapest_plan
from swarmlab.placement.problem import Problem
from swarmlab.placement.search import good_placement
from swarmlab.placement.situation import blocks_left
from swarmlab.types import Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats, Layout
    from swarmlab.placement.policy import Server
    from swarmlab.placement.situation import Situation

KICKS = 200  # enough to find the optimum of ten servers
NODES = 100  # a limit on HiGHS that, unlike seconds, gives the same plan on every machine


@dataclass(frozen=True)
class SharedPlan:
    """What the plan means to one server.

    :param target: where it should be; its present span if others move
    :param movers: how many servers the plan moves
    :param blocks_loaded: blocks that all of them load
    :param lost_tps: served swarm throughput missing while they load, averaged over those blocks
    :param present_tps: swarm throughput without the plan
    :param planned_tps: swarm throughput after it
    """

    target: Span
    movers: int
    blocks_loaded: int
    lost_tps: float
    present_tps: float
    planned_tps: float


def shared_plan(layout: Layout, seen: Situation, server: Server, old: Span, *, share: float) -> SharedPlan:
    """The fewest blocks to load for ``share`` of the best placement, counting those on the move as arrived.

    :param seen: the situation of ``server``
    """
    movable = [
        record
        for i, record in enumerate(layout.records)
        if seen.movable[i] and record.peer_id != server.peer_id
    ]
    spans = {record.peer_id: (record.span, min(record.throughput_tps, seen.cap_tps)) for record in movable}
    here = np.array([[record.span.start, record.span.end] for record in movable], dtype=np.int64).reshape(
        -1, 2
    )
    rates = np.array([rate for _, rate in spans.values()])
    moving = np.maximum(0.0, seen.committed_tps - block_sums(here[:, 0], here[:, 1], rates, layout.n_blocks))
    spans[server.peer_id] = (old, min(server.throughput_tps, seen.cap_tps))
    peers = tuple(sorted(spans))
    starts, planned_tps, present_tps, loaded = _solve(
        tuple((spans[peer][0].start, spans[peer][0].end, spans[peer][1]) for peer in peers),
        tuple(moving.tolist()),
        share,
        server.load.keeps_overlap,
    )
    mine = starts[peers.index(server.peer_id)]
    changes = [
        (spans[peer][0], Span(start, start + spans[peer][0].length), spans[peer][1])
        for peer, start in zip(peers, starts, strict=True)
        if start != spans[peer][0].start
    ]
    served = seen.serving_tps.copy()
    served[old.start : old.end] += spans[server.peer_id][1]
    lost = sum(
        server.load.blocks_loaded(was, to) * _lost_tps(served, server, was, to, rate)
        for was, to, rate in changes
    )
    return SharedPlan(
        target=Span(mine, mine + old.length),
        movers=len(changes),
        blocks_loaded=loaded,
        lost_tps=lost / max(1, loaded),
        present_tps=present_tps,
        planned_tps=planned_tps,
    )


def _lost_tps(served: Floats, server: Server, old: Span, new: Span, rate: float) -> float:
    # What the served bottleneck loses while one server goes from `old` to `new`.
    meanwhile = served.copy()
    for left in blocks_left(old, new) if server.load.keeps_overlap else (slice(old.start, old.end),):
        meanwhile[left] -= rate
    return max(0.0, float(served.min()) - max(0.0, float(meanwhile.min())))


@lru_cache(maxsize=256)
def _solve(
    spans: tuple[tuple[int, int, float], ...],
    moving_tps: tuple[float, ...],
    share: float,
    keeps_overlap: bool,
) -> tuple[tuple[int, ...], float, float, int]:
    # Remembered because all servers of a swarm, and each at every check, ask the same.
    held = np.array([span[:2] for span in spans], dtype=np.int64)
    task = Problem(
        n_blocks=len(moving_tps),
        peers=tuple(str(i) for i in range(len(spans))),
        widths=held[:, 1] - held[:, 0],
        tps=np.array([rate for _, _, rate in spans]),
        starts=held[:, 0],
        base_tps=np.array(moving_tps),
    )
    present = task.swarm_tps(task.starts)
    best = good_placement(task, np.random.default_rng(0), kicks=KICKS)
    if present >= share * best.swarm_tps:
        return tuple(task.starts.tolist()), present, present, 0
    plan = cheapest_plan(
        task, share * best.swarm_tps, reaching=best.starts, keeps_overlap=keeps_overlap, node_limit=NODES
    )
    return tuple(plan.starts.tolist()), plan.swarm_tps, present, plan.blocks_loaded
