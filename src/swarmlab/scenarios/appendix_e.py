"""+exp=appendix_e: placement policies in the paper's simulated swarm, without and with the cost of reloading.

Servers come and go along a sine, each checks once a minute, and every arm meets the same servers at the same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.placement_arms import arm_of, record
from swarmlab.settings import RunSettings
from swarmlab.sim.population import sine_members
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import OPTIMAL, optimum, simulate
from swarmlab.types import Event

INSTANT, RELOAD = "instant", "reload"
SCENARIOS = (INSTANT, RELOAD)


@dataclass(frozen=True)
class AppendixE:
    """One run of the experiment."""

    sim: SimSettings
    scenarios: Sequence[str]
    arms: Sequence[str]
    seed: int

    world: Literal["simulated"] = "simulated"

    @property
    def model(self) -> dict[str, Any]:
        return {"id": f"simulated, {self.sim.n_blocks} blocks", "hash": None}

    @property
    def parts(self) -> list[str]:
        return list(self.scenarios)

    @property
    def n_units(self) -> int:
        return len(self.scenarios) * self.sim.repeats * (len(self.arms) + 1)

    def describe(self) -> str:
        sim = self.sim
        return (
            f"{sim.n_servers} simulated servers, {sim.active_min} to {sim.active_max} of them active, "
            f"{sim.n_blocks} blocks, {sim.duration_s / 3600:g} h\n"
            f"{len(self.scenarios)} scenarios ({', '.join(self.scenarios)}), {sim.repeats} population(s)\n"
            f"arms: {', '.join(self.arms)}; {OPTIMAL} is the bound\n"
            f"about {max(1, round(self.n_units * sim.duration_s / 3600 * 2 / 60))} minute(s)"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Simulate every arm on every population and record it."""
        for repeat in range(self.sim.repeats):
            seed = self.seed + repeat
            members = sine_members(self.sim, seed)
            limit = optimum(self.sim, members, seed)
            for scenario in self.scenarios:
                self._record(run_dir, progress, (scenario, repeat), OPTIMAL, limit)
                for arm in self.arms:
                    progress.begin(scenario, arm)
                    events = simulate(self._settings(scenario), members, arm_of(arm), seed)
                    self._record(run_dir, progress, (scenario, repeat), arm, events)

    def _settings(self, scenario: str) -> SimSettings:
        if scenario == RELOAD:
            return self.sim
        return replace(self.sim, s_per_block=0.0, s_per_move=0.0, mean_choice_delay_s=0.0)

    def _record(
        self, run_dir: RunDir, progress: Progress, part: tuple[str, int], arm: str, events: Sequence[Event]
    ) -> None:
        record(run_dir, events, scenario=part[0], repeat=part[1])
        moves = sum(event.kind == "reloads" and event.fields["old_start"] is not None for event in events)
        samples = [event.fields["swarm_tps"] for event in events if event.kind == "balance"]
        detail = f"population {part[1]}: mean {sum(samples) / len(samples):.1f} tokens/s, {moves} moves"
        progress.end(part[0], arm, "done", detail)


def build_appendix_e(settings: RunSettings) -> AppendixE:
    """The experiment that the settings describe.

    :raises BadInput: for scenarios that there are not
    """
    named = settings.scenarios
    wanted = list(SCENARIOS) if named in ("default", "all") else [named] if isinstance(named, str) else named
    for name in wanted:
        if name not in SCENARIOS:
            raise BadInput("scenarios", name, f"default, all, or some of {', '.join(SCENARIOS)}")
    return AppendixE(settings.sim, wanted, settings.arms, settings.seed)
