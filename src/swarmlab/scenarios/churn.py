"""+exp=churn: a swarm whose servers are replaced all the time, with complete records and with lapsing ones."""

from __future__ import annotations

from swarmlab.scenarios.simulated import SimulatedSwarm, chosen_variants
from swarmlab.settings import RunSettings
from swarmlab.sim.population import churn_members

VARIANTS = {"complete": {}, "lapses": {"lapses_per_hour": 1.0}, "slow_news": {"announce_delay_s": 60.0}}


def build_churn(settings: RunSettings) -> SimulatedSwarm:
    """The experiment that the settings describe.

    :raises BadInput: for scenarios that there are not
    """
    variants = chosen_variants(settings.scenarios, VARIANTS)
    return SimulatedSwarm(settings.sim, variants, settings.arms, settings.seed, churn_members)
