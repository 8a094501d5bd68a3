"""Builds +exp=rebalance, +exp=rebalance_under_load and +exp=sim_vs_real from the settings of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from swarmlab.errors import BadInput
from swarmlab.scenarios.rebalance import Rebalance
from swarmlab.scenarios.rebalance_plan import SCENARIOS, SLOW_DISK
from swarmlab.scenarios.sim_vs_real import SimVsReal, stored_run
from swarmlab.scenarios.swarm_of_run import given
from swarmlab.settings import RunSettings
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.workload.requests import Bounds

DEFAULT = {
    "rebalance": SCENARIOS,
    "rebalance_under_load": tuple(name for name in SCENARIOS if name != SLOW_DISK),
}


def build_rebalance(settings: RunSettings) -> Rebalance:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    soak = settings.soak
    experiment = Rebalance(
        **given(settings),
        scenarios=_chosen(settings.scenarios, DEFAULT.get(settings.experiment, SCENARIOS)),
        settings=settings.rebalance,
        bounds=Bounds(
            prompt_tokens=(soak.prompt_tokens_min, soak.prompt_tokens_max),
            new_tokens=(soak.new_tokens_min, soak.new_tokens_max),
        ),
        deadline_s=settings.deadline_s,
        tolerance=settings.tolerance,
    )
    experiment.check()
    return experiment


def build_sim_vs_real(settings: RunSettings) -> SimVsReal:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    options = settings.rebalance
    if options.run_dir is None:
        real = build_rebalance(settings)
        return SimVsReal(
            settings.arms, options, real.checkpoint.n_blocks, real, None, real.model, settings.seed
        )
    stored = stored_run(options.run_dir, settings.arms)
    # the swarm was what its own settings say, whatever those of this run are
    known = {entry.name: entry for entry in fields(RebalanceSettings)}
    told = {name: value for name, value in stored.config["rebalance"].items() if name in known}
    used = replace(RebalanceSettings(**told), run_dir=options.run_dir, simulations=options.simulations)
    n_blocks = 1 + max(row["block"] for row in stored.history("blocks"))
    return SimVsReal(settings.arms, used, n_blocks, None, stored.path, stored.info["model"], settings.seed)


def _chosen(wanted: Any, default: Sequence[str]) -> list[str]:
    """In the order in which they happen.

    :raises BadInput: for a scenario that there is not
    """
    names = default if wanted == "default" else SCENARIOS if wanted == "all" else wanted
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in SCENARIOS:
            raise BadInput("scenarios", name, f"default, all, or some of {', '.join(SCENARIOS)}")
    return [name for name in SCENARIOS if name in names]
