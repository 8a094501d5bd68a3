"""Builds +exp=failover from the settings of a run."""

from __future__ import annotations

from pathlib import Path

from swarmlab.scenarios.failover import Failover
from swarmlab.scenarios.failover_files import FOLDER, load_scenarios
from swarmlab.scenarios.swarm_of_run import given
from swarmlab.settings import RunSettings


def build_failover(settings: RunSettings) -> Failover:
    """The failover experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    shared = given(settings)
    folder = Path(settings.scenarios_dir) if settings.scenarios_dir else FOLDER
    experiment = Failover(
        **shared,
        throughput_tps=settings.swarm.throughput_tps,
        scenarios=load_scenarios(settings.scenarios, shared["checkpoint"].n_blocks, folder),
        deadline_s=settings.deadline_s,
        floor_repeats=settings.floor_repeats,
    )
    experiment.check()
    return experiment
