"""Small simulated swarms for tests, and a policy that does what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from swarmlab.placement.policy import Server, stay
from swarmlab.sim.population import Ending, Member, Visit
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import simulate
from swarmlab.sim.world import Arm
from swarmlab.types import Decision, Event, Intent, Span, SwarmView

FOREVER = float("inf")
TINY = SimSettings(
    n_blocks=4, duration_s=200.0, warm_up_s=0.0, sample_every_s=60.0, blocks_every_s=1000.0, check_period_s=60.0,
    check_evenly=False, mean_choice_delay_s=0.0, update_period_s=60.0, expiration_s=120.0, s_per_block=10.0,
)  # fmt: skip


def member(
    name: str, n_blocks: int, tps: float, start_s: float = 0.0, end_s: float = FOREVER, how: str = "leave"
) -> Member:
    return Member(name, n_blocks, tps, (Visit(start_s, end_s, Ending(how)),))


@dataclass(frozen=True)
class Told:
    """Joins at ``first``; at its check number n does ``then[n]``: a target, an intent, or "again" (the original)."""

    first: Span
    then: tuple[Any, ...] = ()
    mean_check_period_s: float = 60.0
    mean_choice_delay_s: float = 0.0
    name: str = "told"
    asked: list[int] = field(default_factory=list)

    def choose(self, view: SwarmView, server: Server, rng: Any) -> Decision:
        del view, server, rng
        return Decision(True, None, self.first, 1.0, 0.0, self.name, "told")

    def reconsider(self, view: SwarmView, server: Server, memory: Any, rng: Any) -> Decision:
        del view, memory, rng
        number = len(self.asked)
        self.asked.append(number)
        decision = stay(server, 1.0, self.name, "told to stay")
        what = self.then[number] if number < len(self.then) else None
        if isinstance(what, Intent):
            return replace(decision, intent=what, check_again_s=30.0)
        if isinstance(what, Span):
            return replace(decision, moved=True, target=what, reason="told to go")
        if what == "again":
            return replace(decision, moved=True, target=Span(1, 3), keeps_target=False, reason="told to go")
        return decision


def run(
    policy: Any, members: list[Member], *, keeps: bool = False, seed: int = 0, **changes: Any
) -> list[Event]:
    return simulate(replace(TINY, **changes), members, Arm(policy.name, policy, keeps_overlap=keeps), seed)


def rows(history: list[Event], kind: str) -> list[dict[str, Any]]:
    return [{"t": event.t_s, **event.fields} for event in history if event.kind == kind]


def states(history: list[Event], server: str) -> list[tuple]:
    """(seconds, state, announced span, served span) of one server."""
    return [
        (
            row["t"],
            row["state"],
            _text(row["start"], row["end"]),
            _text(row["serving_start"], row["serving_end"]),
        )
        for row in rows(history, "servers")
        if row["server"] == server
    ]


def _text(start: int | None, end: int | None) -> str | None:
    return None if start is None else f"{start}:{end}"
