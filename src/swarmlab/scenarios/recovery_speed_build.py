"""Builds +exp=recovery_speed from the settings of a run."""

from __future__ import annotations

from dataclasses import asdict

from swarmlab.analysis.recovery_speed_grid import cells_of
from swarmlab.errors import BadInput
from swarmlab.scenarios.failover_files import UNITS, scale
from swarmlab.scenarios.recovery_speed import RecoverySpeed
from swarmlab.scenarios.swarm_of_run import given
from swarmlab.settings import RunSettings

# In sixteenths of the model: three spans, each held twice.
SERVERS = {"a1": (0, 5), "a2": (0, 5), "b1": (5, 11), "b2": (5, 11), "c1": (11, 16), "c2": (11, 16)}


def build_recovery_speed(settings: RunSettings) -> RecoverySpeed:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    shared, speed = given(settings), settings.speed
    n_blocks = shared["checkpoint"].n_blocks
    if n_blocks < UNITS:
        raise BadInput("model.n_blocks", n_blocks, f"at least {UNITS}")
    experiment = RecoverySpeed(
        **shared,
        throughput_tps=settings.swarm.throughput_tps,
        cells={arm: cells_of(arm, asdict(speed)) for arm in settings.arms},
        repeats=speed.repeats,
        servers={name: scale(start, end, n_blocks) for name, (start, end) in SERVERS.items()},
        deadline_s=settings.deadline_s,
        tolerance=settings.tolerance,
        floor_repeats=settings.floor_repeats,
    )
    experiment.check()
    return experiment
