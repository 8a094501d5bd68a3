"""+exp=appendix_e: placement policies in the paper's simulated swarm, without and with the cost of reloading.

Servers come and go along a sine, each checks once a minute, and every arm meets the same servers at the same times.
"""

from __future__ import annotations

from swarmlab.scenarios.simulated import SimulatedSwarm, chosen_variants, drawn_or_recorded
from swarmlab.settings import RunSettings
from swarmlab.sim.population import sine_members

VARIANTS = {"instant": {"s_per_block": 0.0, "s_per_move": 0.0, "mean_choice_delay_s": 0.0}, "reload": {}}


def build_appendix_e(settings: RunSettings) -> SimulatedSwarm:
    """The experiment that the settings describe.

    :raises BadInput: for scenarios that there are not, or a recording that cannot be read
    """
    variants = chosen_variants(settings.scenarios, VARIANTS)
    sim, draw = drawn_or_recorded(settings.sim, sine_members)
    return SimulatedSwarm(sim, variants, settings.arms, settings.seed, draw)
