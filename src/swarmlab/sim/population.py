"""Who takes part in a simulated swarm, and when: drawn once, the same for every arm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from swarmlab.sim.settings import SimSettings
    from swarmlab.types import Span

MINUTE_S = 60.0
ARRIVING_S = 600.0


class Ending(StrEnum):
    """How a server's stay ends. A crashed or preempted server tells nobody; a preempted one comes back later."""

    LEAVE = "leave"
    CRASH = "crash"
    PREEMPT = "preempt"


@dataclass(frozen=True)
class Visit:
    """One stay of a server in the swarm, in simulated seconds."""

    start_s: float
    end_s: float
    ending: Ending = Ending.LEAVE


@dataclass(frozen=True)
class Member:
    """One server, with everything about it that no policy decides.

    :param name: its peer id, the same at every visit
    :param n_blocks: how many blocks it holds
    :param throughput_tps: tokens/s through each of them
    :param visits: in order, not overlapping
    :param held: blocks that it serves from the very beginning; None for one that has to choose and load
    """

    name: str
    n_blocks: int
    throughput_tps: float
    visits: tuple[Visit, ...]
    held: Span | None = None

    def present(self, at_s: float) -> bool:
        return any(visit.start_s <= at_s < visit.end_s for visit in self.visits)

    def leaves_s(self, at_s: float) -> float:
        """When the visit that goes on at a time ends; that time itself if none does."""
        return next((visit.end_s for visit in self.visits if visit.start_s <= at_s < visit.end_s), at_s)


def generator(seed: int, *concern: int) -> np.random.Generator:
    """A stream of random numbers of its own for each concern, so that using one more never shifts another."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=concern))


# Concerns; per-server streams append the server's place in the population.
THROUGHPUTS, LIFETIMES, CHECKS, POLICIES, DELAYS, LAPSES, CLIENTS, DISTANCES = range(8)


def sine_members(settings: SimSettings, seed: int) -> tuple[Member, ...]:
    """Servers that come and go so that the number of active ones follows a sine, other ones at each peak.

    Appendix E of arXiv 2312.08361: throughput and capacity evenly distributed. Activity begins at a trough. Who
    joins next is drawn anew at each trough, and who leaves is drawn from all who are there.
    """
    draw = generator(seed, THROUGHPUTS)
    tps = draw.uniform(settings.throughput_min_tps, settings.throughput_max_tps, settings.n_servers)
    widths = draw.integers(settings.capacity_min, settings.capacity_max + 1, settings.n_servers)
    visits = _sine_visits(settings, generator(seed, LIFETIMES))
    return tuple(
        Member(f"s{i:04d}", int(widths[i]), float(tps[i]), tuple(visits[i]))
        for i in range(settings.n_servers)
    )


def churn_members(settings: SimSettings, seed: int) -> tuple[Member, ...]:
    """``n_servers`` places that are always taken: when a server goes, another one comes at once.

    Each place has its own mean lifetime, drawn evenly between the bounds; lifetimes are exponential. Throughputs are
    lognormal around ``throughput_median_tps``, capacities even. The first servers come within ten minutes.
    """
    throughputs, lifetimes = generator(seed, THROUGHPUTS), generator(seed, LIFETIMES)
    members = []
    for place in range(settings.n_servers):
        mean_s = lifetimes.uniform(settings.lifetime_min_s, settings.lifetime_max_s)
        at_s, turn = lifetimes.uniform(0, ARRIVING_S), 0
        while at_s < settings.duration_s:
            end_s = at_s + lifetimes.exponential(mean_s)
            ending = Ending.CRASH if lifetimes.random() < settings.crash_share else Ending.LEAVE
            tps = settings.throughput_median_tps * throughputs.lognormal(0.0, settings.throughput_sigma)
            width = int(throughputs.integers(settings.capacity_min, settings.capacity_max + 1))
            members.append(Member(f"s{place:04d}-{turn}", width, float(tps), (Visit(at_s, end_s, ending),)))
            at_s, turn = end_s, turn + 1
    return tuple(members)


def active_target(settings: SimSettings, at_s: float) -> int:
    """How many servers should be active."""
    middle, swing = (
        (settings.active_max + settings.active_min) / 2,
        (settings.active_max - settings.active_min) / 2,
    )
    return round(middle - swing * math.cos(2 * math.pi * at_s / settings.activity_period_s))


def _sine_visits(settings: SimSettings, draw: np.random.Generator) -> list[list[Visit]]:
    visits: list[list[Visit]] = [[] for _ in range(settings.n_servers)]
    since: dict[int, float] = {}
    waiting: list[int] = []
    cycle = -1
    for minute in range(math.ceil(settings.duration_s / MINUTE_S)):
        at_s = minute * MINUTE_S
        if int(at_s // settings.activity_period_s) > cycle:
            cycle += 1
            waiting = [int(i) for i in draw.permutation(settings.n_servers) if int(i) not in since]
        change = active_target(settings, at_s) - len(since)
        jitter_s = np.sort(draw.uniform(0, MINUTE_S, abs(change))) if minute else np.zeros(abs(change))
        for offset_s in jitter_s:
            if change > 0:
                since[waiting.pop(0)] = at_s + offset_s
            else:
                gone = sorted(since)[int(draw.integers(len(since)))]
                ending = Ending.CRASH if draw.random() < settings.crash_share else Ending.LEAVE
                visits[gone].append(Visit(since.pop(gone), at_s + offset_s, ending))
                waiting.append(gone)
    for i, start_s in since.items():
        visits[i].append(Visit(start_s, math.inf))
    return visits
