"""A swarm of servers that follow one policy, see each other at once, and take their time to load. For tests only."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from swarmlab.placement.memory import Memory
from swarmlab.placement.policy import Asking, Policy, Server
from swarmlab.placement.testimony import Answer, Answers
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


def play(
    policy: Policy,
    n_blocks: int,
    servers: list[Server],
    *,
    seconds: float = 3600.0,
    seen_after_s: float = 0.0,
    crashes: Mapping[str, float] | None = None,
    asks: bool = False,
) -> Played:
    """Check one server after another, each a minute apart, and let moves take their loading time.

    A server that moves shows its target as JOINING and keeps serving what both spans share.

    :param seen_after_s: how old the picture is that everybody has of the others
    :param crashes: when servers disappear, by peer id
    :param asks: whether servers in doubt are asked themselves: those that are there serve what they are shown with
    """
    rng = np.random.default_rng(0)
    result = Played()
    known = {server.peer_id: server for server in servers}
    records = {s.peer_id: ServerRecord(s.peer_id, _held(s), s.throughput_tps) for s in servers}
    keeping: dict[str, Span | None] = {}  # what a loading server still serves
    memories: dict[str, Memory | None] = dict.fromkeys(records)
    queue = [(float(i), i, server.peer_id) for i, server in enumerate(servers)]
    order = len(queue)
    past = [(-float("inf"), dict(records))]
    while queue and queue[0][0] <= seconds:
        now_s, _, peer = heapq.heappop(queue)
        for gone in [name for name, at_s in (crashes or {}).items() if at_s <= now_s and name in records]:
            del records[gone]
            keeping.pop(gone, None)
            past.append((now_s, dict(records)))
        if peer not in records:
            continue
        before = _served(records, keeping)
        while len(past) > 1 and past[1][0] <= now_s - seen_after_s:
            past.pop(0)
        view = SwarmView(n_blocks, tuple(past[0][1].values()), seen_at_s=now_s)
        wait_s = PERIOD_S
        if records[peer].state is ServerState.JOINING:
            records[peer] = replace(records[peer], state=ServerState.ONLINE)
            keeping.pop(peer)
        else:
            if asks and isinstance(policy, Asking):
                memories[peer] = _ask(policy, view, known[peer], memories[peer], records)
            decision = policy.reconsider(view, known[peer], memories[peer], rng)
            memories[peer] = decision.memory
            records[peer] = replace(records[peer], intent=decision.intent)
            wait_s = decision.check_again_s or PERIOD_S
            if decision.moved:
                wait_s = _begin(decision, known, records, keeping, result, (now_s, peer))
        past.append((now_s, dict(records)))
        result.unserved |= before - _served(records, keeping)
        order += 1
        heapq.heappush(queue, (now_s + wait_s, order, peer))
    result.view = SwarmView(n_blocks, tuple(records.values()), seen_at_s=seconds)
    return result


def _ask(
    policy: Asking, view: SwarmView, server: Server, memory: Memory | None, records: dict[str, ServerRecord]
) -> Memory | None:
    doubtful = policy.whom_to_ask(view, server, memory)
    answers = {one.peer_id: Answer.SERVES if one.peer_id in records else Answer.REFUSED for one in doubtful}
    return replace(memory or Memory(), testimony=Answers(answers)) if doubtful else memory


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
