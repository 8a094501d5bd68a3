"""One server's decision on views that are given: what it does with what it saw, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from swarmlab.placement.policy import Policy, Server
from swarmlab.sim.reload import steps
from swarmlab.types import Decision, Span, SwarmView

USUAL_S = 60.0


@dataclass(frozen=True)
class Replayed:
    """What one server came to.

    :param looks: every decision with its time, in order; the last one decides
    :param chosen: the span it ends with; equal to ``decision.old`` if it stays or comes back
    :param blocks_loaded: blocks it loads for that, and ``redundant`` those of them that it held before
    :param reload_s: seconds from the decision until it serves ``chosen`` wholly
    """

    looks: tuple[tuple[float, Decision], ...]
    chosen: Span
    blocks_loaded: int
    redundant: int
    reload_s: float

    @property
    def decided_s(self) -> float:
        return self.looks[-1][0]

    @property
    def decision(self) -> Decision:
        return self.looks[-1][1]


def replay(
    policy: Policy,
    server: Server,
    view_at: Callable[[float], SwarmView],
    *,
    first_s: float,
    last_s: float,
    offline_s: float,
    seed: int,
) -> Replayed:
    """Let one server check until it moves or ``last_s`` has passed; nobody else does anything.

    It looks again when its policy says so, otherwise every minute while it has a move in mind, else no more.

    :param view_at: what a reader sees at a time
    :param offline_s: wait between unloading and choosing again, for a policy that throws its target away
    """
    rng = np.random.default_rng(seed)
    looks = tuple(_look(policy, server, view_at, first_s, last_s, rng))
    decided_s, decision = looks[-1]
    old = decision.old
    assert old is not None
    if not decision.moved:
        return Replayed(looks, old, 0, 0, 0.0)
    chosen, wait_s, load = decision.target, 0.0, server.load
    if not decision.keeps_target:
        wait_s = offline_s
        fresh = view_at(decided_s + wait_s).without([server.peer_id])
        chosen = policy.choose(fresh, replace(server, span=None), rng).target
        load = replace(load, keeps_overlap=False)
    plan = steps(old, chosen, load)
    blocks = [block for step in plan for block in step.blocks]
    redundant = sum(block in old for block in blocks)
    return Replayed(looks, chosen, len(blocks), redundant, wait_s + sum(step.seconds for step in plan))


def _look(
    policy: Policy,
    server: Server,
    view_at: Callable[[float], SwarmView],
    first_s: float,
    last_s: float,
    rng: np.random.Generator,
) -> Iterator[tuple[float, Decision]]:
    # an earlier check, before anything was missing, is what there is to remember
    memory = policy.reconsider(view_at(0.0), server, None, rng).memory
    at_s = first_s
    while True:
        decision = policy.reconsider(view_at(at_s), server, memory, rng)
        yield at_s, decision
        memory = decision.memory
        at_s += USUAL_S if decision.check_again_s is None else decision.check_again_s
        if decision.moved or at_s > last_s:
            return
