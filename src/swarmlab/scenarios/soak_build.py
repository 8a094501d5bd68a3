"""Builds +exp=failover_soak from the settings of a run."""

from __future__ import annotations

from swarmlab.errors import BadInput
from swarmlab.faults.nemesis import NemesisSettings
from swarmlab.scenarios.failover_files import UNITS, scale
from swarmlab.scenarios.soak import Soak
from swarmlab.scenarios.swarm_of_run import given
from swarmlab.settings import RunSettings
from swarmlab.workload.requests import Bounds

# In sixteenths of the model. Every chain has three servers, and those begin and end at different blocks: a lost span
# may be replaced by one server, by a wider one, or by parts of two.
SERVERS = {
    "a1": (0, 5),
    "a2": (0, 5),
    "b1": (5, 11),
    "b2": (5, 11),
    "c1": (11, 16),
    "c2": (11, 16),
    "left": (0, 8),
    "wide": (3, 13),
}


def build_soak(settings: RunSettings) -> Soak:
    """The soak that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    shared, soak = given(settings), settings.soak
    n_blocks = shared["checkpoint"].n_blocks
    if n_blocks < UNITS:
        raise BadInput("model.n_blocks", n_blocks, f"at least {UNITS}")
    experiment = Soak(
        **shared,
        throughput_tps=settings.swarm.throughput_tps,
        servers={name: scale(start, end, n_blocks) for name, (start, end) in SERVERS.items()},
        clients=soak.clients,
        nemesis=NemesisSettings(
            failures_per_minute=soak.failures_per_minute,
            slowdowns_per_minute=soak.slowdowns_per_minute,
            stop_share=soak.stop_share,
            away_s=(soak.away_min_s, soak.away_max_s),
            pause_s=(soak.pause_min_s, soak.pause_max_s),
            aimed_share=soak.aimed_share,
            allow_outage=soak.allow_outage,
        ),
        bounds=Bounds(
            prompt_tokens=(soak.prompt_tokens_min, soak.prompt_tokens_max),
            new_tokens=(soak.new_tokens_min, soak.new_tokens_max),
        ),
        duration_s=60 * settings.minutes,
        deadline_s=settings.deadline_s,
        tolerance=settings.tolerance,
    )
    experiment.check()
    return experiment
