"""Runs one arm on one population, and the bound that no arm can pass."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.problem import Placement, Problem
from swarmlab.placement.search import good_placement, relaxed_bound
from swarmlab.sim.clients import clients_of
from swarmlab.sim.oracle import Oracle
from swarmlab.sim.processes import ServerLife
from swarmlab.sim.world import TIME_DIGITS, Arm, World
from swarmlab.types import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swarmlab.sim.population import Member
    from swarmlab.sim.settings import SimSettings

OPTIMAL = "optimal"
# A swarm is hundreds of thousands of objects that live on and hardly any cycles: looking for those after every 700 new
# objects, as Python does, takes a third of the time.
RARELY = (200_000, 50, 50)


def simulate(settings: SimSettings, members: Sequence[Member], arm: Arm, seed: int) -> list[Event]:
    """What happens in the swarm: one event after another, the same each time for the same arguments.

    :param seed: of checks, delays, lapses and the policy's own draws; the population is in ``members``
    """
    return run_world(settings, members, arm, seed).history


def run_world(settings: SimSettings, members: Sequence[Member], arm: Arm, seed: int) -> World:
    """The same, and the whole world at its end."""
    if isinstance(arm.policy, Oracle):
        settings = replace(settings, announce_delay_s=0.0, view_age_s=0.0, lapses_per_hour=0.0)
    world = World(arm, settings, seed)
    for index, member in enumerate(members):
        world.env.process(ServerLife(world, member, index).run())
    world.env.process(world.sample())
    with clients_of(world, members), _garbage_rarely():
        world.env.run(until=settings.duration_s)
    return world


@contextmanager
def _garbage_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def optimum(settings: SimSettings, members: Sequence[Member], seed: int) -> list[Event]:
    """The best placement of the servers present at each sample, as if all could move for nothing.

    ``swarm_tps`` is what a search found, ``optimal_tps`` a bound that is certain.
    """
    events = []
    known: dict[tuple[str, ...], Placement] = {}
    for number in range(int(np.ceil(settings.duration_s / settings.sample_every_s))):
        at_s = number * settings.sample_every_s
        there = [member for member in members if member.present(at_s)]
        names = tuple(member.name for member in there)
        if names not in known:
            rng = np.random.default_rng(seed)
            known[names] = good_placement(_problem(settings, there), rng, kicks=settings.optimum_kicks)
        best = known[names]
        fields = {
            "swarm_tps": best.swarm_tps,
            "optimal_tps": best.bound_tps,
            "bound_gap": best.gap,
            "n_active": len(there),
        }
        events.append(Event(round(at_s, TIME_DIGITS), "balance", OPTIMAL, fields))
    return events


def loaded_bounds(settings: SimSettings, members: Sequence[Member]) -> list[float]:
    """Of each sample: what nobody can pass who pays for loading, even if all moves after the first load were free.

    A server counts from when it can have loaded its blocks, as if it had chosen them without a moment's wait.
    """
    bounds = []
    known: dict[tuple[str, ...], float] = {}
    for number in range(int(np.ceil(settings.duration_s / settings.sample_every_s))):
        at_s = number * settings.sample_every_s
        there = [member for member in members if _loaded(settings, member, at_s)]
        names = tuple(member.name for member in there)
        if names not in known:
            known[names] = relaxed_bound(_problem(settings, there))
        bounds.append(known[names])
    return bounds


def _loaded(settings: SimSettings, member: Member, at_s: float) -> bool:
    width = min(member.n_blocks, settings.n_blocks)
    load_s = settings.s_per_move + settings.s_per_block * width
    return any(visit.start_s + load_s <= at_s < visit.end_s for visit in member.visits)


def _problem(settings: SimSettings, there: Sequence[Member]) -> Problem:
    widths = [min(member.n_blocks, settings.n_blocks) for member in there]
    return Problem(
        settings.n_blocks,
        tuple(member.name for member in there),
        np.array(widths, dtype=np.int64),
        np.array([member.throughput_tps for member in there], dtype=np.float64),
        np.zeros(len(there), dtype=np.int64),
        np.zeros(settings.n_blocks),
    )
