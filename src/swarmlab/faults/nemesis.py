"""PURE: an endless schedule of random failures and slowdowns, given a seed and who serves what."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from swarmlab.faults.schedule import Fault
from swarmlab.types import Span

SPREAD = 0.5  # of the mean gap: gaps vary by so much, so that the number of faults in a given time does not


class Stream(StrEnum):
    """Failures and slowdowns come independently of each other."""

    FAILURES = "failures"
    SLOWDOWNS = "slowdowns"


@dataclass(frozen=True)
class NemesisSettings:
    """How much goes wrong.

    :param failures_per_minute: servers killed or stopped
    :param slowdowns_per_minute: servers paused for a moment, which nobody should take for a failure
    :param stop_share: how many of the failures are hangs (SIGSTOP) instead of deaths (SIGKILL), 0 to 1
    :param away_s: shortest and longest time, in seconds, until a failed server is continued or restarted
    :param pause_s: shortest and longest pause, in seconds
    :param aimed_share: how many of all faults are aimed at servers that clients use just then, if any may be taken
    :param allow_outage: whether the last live holder of a block may be taken, too
    """

    failures_per_minute: float
    slowdowns_per_minute: float
    stop_share: float
    away_s: tuple[float, float]
    pause_s: tuple[float, float]
    aimed_share: float = 0.0
    allow_outage: bool = False

    def rate(self, stream: Stream) -> float:
        """Faults per minute."""
        return self.failures_per_minute if stream is Stream.FAILURES else self.slowdowns_per_minute


@dataclass(frozen=True)
class Plan:
    """One fault, before it is known who is there to suffer it.

    :param gap_s: seconds after the fault before it of the same stream
    :param seconds: how long the server is to be away, or paused
    :param pick: 0 to 1, which of the servers that may be taken
    :param aimed: whether those in use come first
    """

    gap_s: float
    fault: Fault
    seconds: float
    pick: float
    aimed: bool


def plan(settings: NemesisSettings, seed: int, stream: Stream, number: int) -> Plan:
    """The fault with this number, from 0, of a stream; it depends on nothing that happened before."""
    draw = random.Random(f"{seed}/{stream.value}/{number}")
    mean_s = 60.0 / settings.rate(stream)
    gap_s = mean_s * draw.uniform(1 - SPREAD, 1 + SPREAD)
    if stream is Stream.SLOWDOWNS:
        fault, seconds = Fault.PAUSE, draw.uniform(*settings.pause_s)
    else:
        fault = Fault.STOP if draw.random() < settings.stop_share else Fault.KILL
        seconds = draw.uniform(*settings.away_s)
    return Plan(gap_s, fault, seconds, draw.random(), draw.random() < settings.aimed_share)


def choose(
    planned: Plan,
    holders: Mapping[str, Span],
    away: Collection[str],
    *,
    allow_outage: bool,
    in_use: Collection[str] = (),
) -> str | None:
    """The server that a planned fault takes; None if none may be taken now.

    :param holders: all servers and the blocks they hold when they are there
    :param away: those that are not serving now
    :param in_use: those that clients use now
    """
    able = sorted(set(holders) - set(away)) if allow_outage else expendable(holders, away)
    if planned.aimed:
        able = [name for name in able if name in in_use] or able
    return able[min(int(planned.pick * len(able)), len(able) - 1)] if able else None


def expendable(holders: Mapping[str, Span], away: Collection[str]) -> list[str]:
    """Serving servers of which every block is also held by another serving one, by name."""
    live = {name: span for name, span in holders.items() if name not in away}

    def spared(name: str) -> bool:
        others = [span for other, span in live.items() if other != name]
        return all(any(block in span for span in others) for block in live[name])

    return sorted(filter(spared, live))
