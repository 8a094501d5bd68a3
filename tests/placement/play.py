"""A swarm of servers that follow one policy, see each other at once, and take their time to load. For tests only."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from swarmlab.placement.memory import Memory
from swarmlab.placement.policy import Policy, Server
from swarmlab.types import Decision, ServerRecord, ServerState, Span, SwarmView

PERIOD_S = 60.0


@dataclass
class Played:
    """What happened.

    :param moves: (seconds, server, from, to)
    :param unserved: blocks that had somebody and then, for a time, nobody
    """

    moves: list[tuple[float, str, Span, Span]] = field(default_factory=list)
    blocks_loaded: int = 0
    unserved: set[int] = field(default_factory=set)
    view: SwarmView = field(default_factory=lambda: SwarmView(1, ()))

    @property
    def swarm_tps(self) -> float:
        values = np.zeros(self.view.n_blocks)
        for record in self.view.serving():
            values[record.span.start : record.span.end] += record.throughput_tps
        return float(values.min())


def play(policy: Policy, n_blocks: int, servers: list[Server], *, seconds: float = 3600.0) -> Played:
    """Check one server after another, each a minute apart, and let moves take their loading time.

    A server that moves shows its target as JOINING and keeps serving what both spans share.
    """
    rng = np.random.default_rng(0)
    result = Played()
    known = {server.peer_id: server for server in servers}
    records = {s.peer_id: ServerRecord(s.peer_id, _held(s), s.throughput_tps) for s in servers}
    keeping: dict[str, Span | None] = {}  # what a loading server still serves
    memories: dict[str, Memory | None] = dict.fromkeys(records)
    queue = [(float(i), i, server.peer_id) for i, server in enumerate(servers)]
    order = len(queue)
    while queue and queue[0][0] <= seconds:
        now_s, _, peer = heapq.heappop(queue)
        before = _served(records, keeping)
        view = SwarmView(n_blocks, tuple(records.values()), seen_at_s=now_s)
        wait_s = PERIOD_S
        if records[peer].state is ServerState.JOINING:
            records[peer] = replace(records[peer], state=ServerState.ONLINE)
            keeping.pop(peer)
        else:
            decision = policy.reconsider(view, known[peer], memories[peer], rng)
            memories[peer] = decision.memory
            records[peer] = replace(records[peer], intent=decision.intent)
            wait_s = decision.check_again_s or PERIOD_S
            if decision.moved:
                wait_s = _begin(decision, known, records, keeping, result, (now_s, peer))
        result.unserved |= before - _served(records, keeping)
        order += 1
        heapq.heappush(queue, (now_s + wait_s, order, peer))
    result.view = SwarmView(n_blocks, tuple(records.values()), seen_at_s=seconds)
    return result


def _begin(
    decision: Decision,
    known: dict[str, Server],
    records: dict[str, ServerRecord],
    keeping: dict[str, Span | None],
    result: Played,
    when: tuple[float, str],
) -> float:
    now_s, peer = when
    old, new, load = _held(known[peer]), decision.target, known[peer].load
    result.moves.append((now_s, peer, old, new))
    result.blocks_loaded += load.blocks_loaded(old, new)
    shared = Span(max(old.start, new.start), min(old.end, new.end)) if old.overlap(new) else None
    keeping[peer] = shared if load.keeps_overlap else None
    records[peer] = replace(records[peer], span=new, state=ServerState.JOINING, intent=None)
    known[peer] = replace(known[peer], span=new)
    return load.reload_s(old, new)


def _held(server: Server) -> Span:
    assert server.span is not None
    return server.span


def _served(records: dict[str, ServerRecord], keeping: dict[str, Span | None]) -> set[int]:
    spans = [record.span for record in records.values() if record.state is ServerState.ONLINE]
    spans += [span for span in keeping.values() if span is not None]
    return {block for span in spans for block in span}
