"""+exp=churn: a swarm whose servers are replaced all the time, with complete records and with lapsing ones."""

from __future__ import annotations

from dataclasses import replace

from swarmlab.scenarios.simulated import SimulatedSwarm, chosen_variants, drawn_or_recorded
from swarmlab.settings import RunSettings
from swarmlab.sim.population import churn_members

LAPSES, FEW = {"lapses_per_hour": 1.0}, {"n_servers": 20, "active_min": 20, "active_max": 20}
DEFAULT = {"complete": {}, "lapses": LAPSES, "slow_news": {"announce_delay_s": 60.0}}
# swept is few with expectations that hold for any lifetimes and load times
VARIANTS = DEFAULT | {"few": FEW, "few_lapses": FEW | LAPSES, "swept": FEW}
# the same with clients: so many unless the settings say how many
WITH_CLIENTS = {f"{name}_clients": VARIANTS[name] for name in ("complete", "few", "few_lapses")}
N_CLIENTS = 30


def build_churn(settings: RunSettings) -> SimulatedSwarm:
    """The experiment that the settings describe.

    :raises BadInput: for scenarios that there are not, or a recording that cannot be read
    """
    variants = chosen_variants(settings.scenarios, VARIANTS | WITH_CLIENTS, DEFAULT)
    clients = settings.sim.clients
    asked = {"clients": replace(clients, n_clients=clients.n_clients or N_CLIENTS)}
    variants = {
        name: {**changes, **asked} if name in WITH_CLIENTS else changes for name, changes in variants.items()
    }
    sim, draw = drawn_or_recorded(settings.sim, churn_members)
    return SimulatedSwarm(sim, variants, settings.arms, settings.seed, draw)
