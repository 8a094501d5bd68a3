"""Builds +exp=failure_rates from the settings of a run."""

from __future__ import annotations

from swarmlab.analysis.failure_rates_model import N_STAGES
from swarmlab.errors import BadInput
from swarmlab.scenarios.failover_build import checkpoint_of, common
from swarmlab.scenarios.failure_rates import FailureRates
from swarmlab.settings import RunSettings


def build_failure_rates(settings: RunSettings) -> FailureRates:
    """The experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    checkpoint, grid = checkpoint_of(settings), settings.rates
    if checkpoint.n_blocks < N_STAGES:
        raise BadInput("model.n_blocks", checkpoint.n_blocks, f"at least {N_STAGES}")
    experiment = FailureRates(
        **common(settings, checkpoint),
        lengths=grid.lengths,
        rates=grid.rates,
        repeats=grid.repeats,
        budget_s=grid.budget_s,
        bounded_s=grid.bounded_s,
    )
    experiment.check()
    return experiment
