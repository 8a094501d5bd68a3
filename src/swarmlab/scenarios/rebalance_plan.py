"""Who is in the swarm of +exp=rebalance, and how each arm starts a server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.swarm.spec import ServerSpec
from swarmlab.types import Span

# Defaults of our policy, to be scaled as its other waits.
NO_RETURN_S, WATCH_S = 3600.0, 20.0
# Its turns are apart by what an announcement takes to be seen, which on a busy machine is no less than anywhere else.
CONFIRM_S = 2.0
UNITS = 24  # layouts are in twenty-fourths of the model
RECORDS_LOST, GAP, WIDE_JOINS, SLOW_DISK = "records_lost", "gap", "wide_joins", "slow_disk"
SCENARIOS = (RECORDS_LOST, GAP, WIDE_JOINS, SLOW_DISK)
ARMS = ("petals", "recheck", "pinned", "appendix_d", "swarmlab")
POLICY_ARMS = ("recheck", "appendix_d")


@dataclass(frozen=True)
class Place:
    """A server and where it should begin.

    :param span: in units; ``free`` servers choose it themselves, by the order in which they join
    :param free: False: it is pinned in every arm, and never looks at the balance of the swarm
    """

    name: str
    span: Span
    tps: float
    free: bool = True

    def scaled(self, n_blocks: int) -> Place:
        by = n_blocks // UNITS
        return Place(self.name, Span(self.span.start * by, self.span.end * by), self.tps, self.free)


# In the order of joining: with petals' rule, and with ours, each one chooses just this span when its turn comes, and
# nobody has a reason to move. The narrow server's records are lost first, and then it dies; petals would die of an
# assertion if it looked at the swarm before its own records are back, so it is pinned.
SWARM = (
    Place("a1", Span(0, 10), 100.0),
    Place("b1", Span(10, 20), 100.0),
    Place("narrow", Span(20, 24), 200.0, free=False),
    Place("a2", Span(0, 10), 100.0),
    Place("b2", Span(10, 20), 100.0),
    Place("small", Span(0, 2), 100.0),
)
LOST = "narrow"
KILLED = ("narrow", "a2")
WIDE = Place("wide", Span(0, 16), 200.0)

# One server of 20 blocks that has to move by two; all others are pinned, so that nobody else can fill the gap.
SLOW_SWARM = (
    Place("rest", Span(0, 20), 300.0, free=False),
    Place("gap", Span(20, 22), 400.0, free=False),
    Place("end", Span(22, 24), 400.0, free=False),
    Place("mover", Span(0, 20), 200.0),
)
SLOW_KILLED, MOVER = "gap", "mover"


@dataclass(frozen=True)
class Starter:
    """Makes the specs of one arm's servers.

    :param folder: of this swarm: events, gates, and the file that makes the disk slow
    :param read_delay_s: of the slow disk
    """

    arm: str
    settings: RebalanceSettings
    folder: Path
    read_delay_s: float
    seed: int

    @property
    def slow_when(self) -> Path:
        return self.folder / "disk_is_slow"

    def events_path(self, name: str) -> Path:
        return self.folder / "events" / f"{name}.jsonl"

    def gate(self, name: str, point: str) -> Path:
        """The file that closes a gate of a server."""
        return self.folder / "gates" / name / f"{point}.hold"

    def spec(self, place: Place, number: int, *, joins_late: bool = False) -> ServerSpec:
        """How the arm starts the server.

        :param number: of the server, for its random numbers
        :param joins_late: it chooses its first blocks itself also in the arm ``pinned``
        """
        pinned = not place.free or (self.arm == "pinned" and not joins_late)
        return ServerSpec(
            name=place.name,
            span=place.span if pinned else None,
            n_blocks=None if pinned else place.span.length,
            throughput_tps=place.tps,
            argv=self._argv(),
            kind=self._kind(place),
            options=tuple(self._options(place, number).items()),
        )

    def _argv(self) -> tuple[str, ...]:
        scaled = self.settings.scaled
        quality = 0.0 if self.arm == "pinned" else self.settings.balance_quality
        return (
            "--balance_quality", str(quality),
            "--mean_balance_check_period", str(scaled(self.settings.check_period_s)),
        )  # fmt: skip

    def _kind(self, place: Place) -> str:
        if place.free and self.arm == "swarmlab":
            return "policy_server:ours"
        return "policy_server:server" if place.free and self.arm in POLICY_ARMS else "policy_server:original"

    def _options(self, place: Place, number: int) -> dict[str, str]:
        scaled = self.settings.scaled
        options = {
            "events_path": str(self.events_path(place.name)),
            "gate_dir": str(self.gate(place.name, "any").parent),
            "seed": str(self.seed * 1000 + number),
            "read_delay_s": str(self.read_delay_s),
            "slow_when": str(self.slow_when),
            "mean_choice_delay_s": str(scaled(self.settings.choice_delay_s)),
        }
        if place.free and self.arm in (*POLICY_ARMS, "swarmlab"):
            options |= {"policy": self.arm, "policy_settings": json.dumps(self._policy_settings())}
        if place.free and self.arm == "swarmlab":
            options |= {"reload": "auto", "drain_s": str(self.settings.drain_s)}
        return options

    def _policy_settings(self) -> dict[str, object]:
        """Fields of the arm's policy: its waits take as much less as petals' own."""
        scaled = self.settings.scaled
        if self.arm == "recheck":
            original = {"balance_quality": self.settings.balance_quality}
            return {"original": original, "time_scale": self.settings.time_scale}
        if self.arm != "swarmlab":
            return {}
        return {
            "grace_s": scaled(self.settings.grace_s),
            "visible_after_s": scaled(self.settings.visible_s),
            "mean_check_period_s": scaled(self.settings.check_period_s),
            "mean_choice_delay_s": scaled(self.settings.choice_delay_s),
            "confirm_s": CONFIRM_S,
            "watch_s": scaled(WATCH_S),
            "no_return_s": scaled(NO_RETURN_S),
            "price": {"horizon_s": scaled(self.settings.horizon_s)},
        }
