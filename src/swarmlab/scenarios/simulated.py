"""An experiment on a simulated swarm: every arm on the same populations, in one or several variants of the world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.placement_arms import arm_of, record
from swarmlab.sim.client_settings import SimClients
from swarmlab.sim.oracle import ORACLE
from swarmlab.sim.population import Member
from swarmlab.sim.recorded import recorded
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import OPTIMAL, loaded_bounds, optimum, simulate
from swarmlab.types import Event

Draw: TypeAlias = Callable[[SimSettings, int], tuple[Member, ...]]

CPU_S_PER_HOUR = 1.0  # of one simulated hour of one arm, roughly


@dataclass(frozen=True)
class SimulatedSwarm:
    """One run of the experiment.

    :param variants: name of each scenario, and the settings that differ in it
    :param draw: makes a population from settings and seed
    """

    sim: SimSettings
    variants: Mapping[str, Mapping[str, Any]]
    arms: Sequence[str]
    seed: int
    draw: Draw

    world: Literal["simulated"] = "simulated"

    @property
    def model(self) -> dict[str, Any]:
        return {"id": f"simulated, {self.sim.n_blocks} blocks", "hash": None}

    @property
    def parts(self) -> list[str]:
        return list(self.variants)

    @property
    def n_units(self) -> int:
        return len(self.variants) * self.sim.repeats * (len(self.arms) + 1)

    def describe(self) -> str:
        sim = self.sim
        minutes = self.n_units * sim.duration_s / 3600 * CPU_S_PER_HOUR / 60
        sizes = sorted({changes.get("n_servers", sim.n_servers) for changes in self.variants.values()})
        return (
            f"{' or '.join(map(str, sizes))} simulated servers, {sim.n_blocks} blocks, {sim.duration_s / 3600:g} h\n"
            f"{len(self.variants)} scenarios ({', '.join(self.variants)}), {sim.repeats} population(s)\n"
            f"arms: {', '.join(self.arms)}; {OPTIMAL} is the bound\n"
            f"about {max(1, round(minutes))} minute(s)"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Simulate every arm on every population and record it."""
        for repeat in range(self.sim.repeats):
            seed = self.seed + repeat
            play = cache(partial(_play, seed))
            for scenario, changes in self.variants.items():
                settings = replace(self.sim, **changes)
                members = self.draw(settings, seed)
                for arm in (OPTIMAL, *self.arms):
                    progress.begin(scenario, arm)
                    events = play(arm, members, told(settings, arm))
                    record(run_dir, events, scenario=scenario, repeat=repeat)
                    progress.end(scenario, arm, "done", f"population {repeat}: {_words(events)}")


def drawn_or_recorded(sim: SimSettings, draw: Draw) -> tuple[SimSettings, Draw]:
    """The settings and the population of a run: as drawn, or as recorded from a real swarm.

    :raises BadInput: for a recording that cannot be read
    """
    if sim.from_record is None:
        return sim, draw
    found = recorded(sim.from_record)
    if sim.repeats > 1:
        raise BadInput("sim.repeats", sim.repeats, "1 with sim.from_record: there is one recorded population")
    return replace(
        sim, n_blocks=found.n_blocks, n_servers=len(found.members)
    ), lambda _sim, _seed: found.members


def told(settings: SimSettings, arm: str) -> SimSettings:
    """The settings that matter to an arm: bounds and the oracle do not depend on what servers are told, or when, and
    bounds not on who asks for tokens.
    """
    if arm not in (OPTIMAL, ORACLE):
        return settings
    clients = SimClients() if arm == OPTIMAL else settings.clients
    return replace(settings, announce_delay_s=0.0, view_age_s=0.0, lapses_per_hour=0.0, clients=clients)


def _play(seed: int, arm: str, members: tuple[Member, ...], sim: SimSettings) -> Sequence[Event]:
    if arm != OPTIMAL:
        return simulate(sim, members, arm_of(arm), seed)
    return [
        replace(event, fields={**event.fields, "loaded_tps": bound})
        for event, bound in zip(optimum(sim, members, seed), loaded_bounds(sim, members), strict=True)
    ]


def _words(events: Sequence[Event]) -> str:
    moves = sum(event.kind == "reloads" and event.fields["old_start"] is not None for event in events)
    samples = [event.fields["swarm_tps"] for event in events if event.kind == "balance"]
    return f"mean {sum(samples) / len(samples):.1f} tokens/s, {moves} moves"


def chosen_variants(
    wanted: Any,
    known: Mapping[str, Mapping[str, Any]],
    default: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Mapping[str, Any]]:
    """The variants that ``scenarios`` names: ``default`` or ``all``, one, or a list.

    :param default: None means all
    :raises BadInput: for one that there is not
    """
    groups = {"default": list(default or known), "all": list(known)}
    names = wanted if isinstance(wanted, list) else groups.get(wanted, [wanted])
    for name in names:
        if name not in known:
            raise BadInput("scenarios", name, f"default, all, or some of {', '.join(known)}")
    return {name: known[name] for name in names}
