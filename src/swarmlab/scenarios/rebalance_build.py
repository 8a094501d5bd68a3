"""Builds +exp=rebalance and +exp=rebalance_under_load from the settings of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from swarmlab.errors import BadInput
from swarmlab.scenarios.failover_build import checkpoint_of, swarm_spec
from swarmlab.scenarios.rebalance import Rebalance
from swarmlab.scenarios.rebalance_plan import SCENARIOS, SLOW_DISK
from swarmlab.settings import RunSettings
from swarmlab.workload.requests import Bounds

DEFAULT = {
    "rebalance": SCENARIOS,
    "rebalance_under_load": tuple(name for name in SCENARIOS if name != SLOW_DISK),
}


def build_rebalance(settings: RunSettings) -> Rebalance:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    checkpoint, soak = checkpoint_of(settings), settings.soak
    experiment = Rebalance(
        checkpoint=checkpoint,
        scenarios=_chosen(settings.scenarios, DEFAULT.get(settings.experiment, SCENARIOS)),
        arms=settings.arms,
        swarm=swarm_spec(settings, checkpoint),
        settings=settings.rebalance,
        client=settings.client.as_petals(),
        recovery=asdict(settings.recovery_settings()),
        bounds=Bounds(
            prompt_tokens=(soak.prompt_tokens_min, soak.prompt_tokens_max),
            new_tokens=(soak.new_tokens_min, soak.new_tokens_max),
        ),
        deadline_s=settings.deadline_s,
        tolerance=settings.tolerance,
        seed=settings.seed,
    )
    experiment.check()
    return experiment


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
