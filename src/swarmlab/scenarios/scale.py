"""+exp=scale: what it costs to simulate swarms of 100 to 10,000 servers. Each measurement has a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from swarmlab.placement.rule import loops
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.placement_arms import arm_of
from swarmlab.settings import RunSettings
from swarmlab.sim.population import churn_members
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import run_world
from swarmlab.sim.world import World

CPU_S_PER_SERVER_DAY = 0.06  # of one simulated day of one server, roughly
WARM_UP = {
    "duration_s": 1200.0,
    "warm_up_s": 0.0,
    "s_per_block": 0.0,
}  # long enough for all loops to be compiled
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024

Row = dict[str, Any]


def build_scale(settings: RunSettings) -> Scale:
    """The experiment that the settings describe."""
    return Scale(settings.sim, settings.scale.sizes, settings.arms, settings.seed)


@dataclass(frozen=True)
class Scale:
    """One run of the experiment.

    :param sizes: how many servers
    """

    sim: SimSettings
    sizes: Sequence[int]
    arms: Sequence[str]
    seed: int

    world: Literal["simulated"] = "simulated"

    @property
    def model(self) -> dict[str, Any]:
        return {"id": f"simulated, {self.sim.n_blocks} blocks", "hash": None}

    @property
    def parts(self) -> list[str]:
        return [f"n={size}" for size in self.sizes]

    @property
    def n_units(self) -> int:
        return len(self.sizes) * len(self.arms) * self.sim.repeats

    def describe(self) -> str:
        days = self.sim.duration_s / 86400 * sum(self.sizes) * len(self.arms) * self.sim.repeats
        one_size = "with one size nothing is known of growth: the verdict will be unknown\n"
        return (
            f"swarms of {', '.join(map(str, self.sizes))} simulated servers, {self.sim.duration_s / 3600:g} h each\n"
            f"arms: {', '.join(self.arms)}\n"
            f"{one_size if len(self.sizes) == 1 else ''}"
            f"about {max(1, round(days * CPU_S_PER_SERVER_DAY / 60))} minute(s)"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Measure one swarm after another, in a fresh process each: memory only ever grows within one."""
        for size, scenario in zip(self.sizes, self.parts, strict=True):
            settings = replace(self.sim, n_servers=size, active_min=size, active_max=size)
            for arm in self.arms:
                for repeat in range(self.sim.repeats):
                    progress.begin(scenario, arm)
                    row = in_fresh_process(measure, settings, arm, self.seed + repeat)
                    run_dir.history.write("speed", arm, scenario=scenario, repeat=repeat, **row)
                    words = f"{row['wall_s']:.1f} s, {row['rss_bytes'] / 2**20:.0f} MiB"
                    progress.end(scenario, arm, "done", words)


def in_fresh_process(function: Callable[..., Row], *args: Any) -> Row:
    """What ``function`` returns in a process of its own, which does not outlive the call, whatever ends that."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        try:
            return fresh.submit(function, *args).result()
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()  # the executor would wait until it is done, which may take an hour
            raise


def measure(settings: SimSettings, arm: str, seed: int) -> Row:
    """Simulate one swarm, and what that took of this process; what it takes to load compiled code is left out."""
    members = churn_members(settings, seed)
    run_world(replace(settings, **WARM_UP), members[:12], arm_of(arm), seed)
    loops("rival")  # which so small a swarm does not need
    idle_bytes = _rss_bytes()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    world = run_world(settings, members, arm_of(arm), seed)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        "servers": settings.n_servers,
        "simulated_s": settings.duration_s,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "events": world.env.n_steps + world.dht.n_renewals,
        "checks": world.n_checks,
        "moves": sum(one.kind == "reloads" and one.fields["old_start"] is not None for one in world.history),
        "rss_bytes": _rss_bytes(),
        "idle_rss_bytes": idle_bytes,
        "swarm_tps_over_mean": _over_mean(world, settings),
    }


def _over_mean(world: World, settings: SimSettings) -> float | None:
    # Weakest block over the mean of all, a bound on the optimum; the largest swarms have no time for a better one.
    shares = [
        event.fields["swarm_tps"] * settings.n_blocks / event.fields["capacity_block_tps"]
        for event in world.history
        if event.kind == "balance"
        and event.t_s >= settings.warm_up_s
        and event.fields["capacity_block_tps"] > 0
    ]
    return sum(shares) / len(shares) if shares else None


def _rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
