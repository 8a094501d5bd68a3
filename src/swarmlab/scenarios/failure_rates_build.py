"""Builds +exp=failure_rates from the settings of a run."""

from __future__ import annotations

from swarmlab.analysis.failure_rates_model import N_STAGES
from swarmlab.errors import BadInput
from swarmlab.scenarios.failure_rates import FailureRates
from swarmlab.scenarios.swarm_of_run import given
from swarmlab.settings import RunSettings


def build_failure_rates(settings: RunSettings) -> FailureRates:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    shared, grid = given(settings), settings.rates
    n_blocks = shared["checkpoint"].n_blocks
    if n_blocks < N_STAGES:
        raise BadInput("model.n_blocks", n_blocks, f"at least {N_STAGES}")
    experiment = FailureRates(
        **shared,
        throughput_tps=settings.swarm.throughput_tps,
        lengths=grid.lengths,
        rates=grid.rates,
        repeats=grid.repeats,
        budget_s=grid.budget_s,
        bounded_s=grid.bounded_s,
    )
    experiment.check()
    return experiment
