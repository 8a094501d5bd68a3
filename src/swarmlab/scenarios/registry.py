"""Which function builds which experiment from the settings."""

from __future__ import annotations

from collections.abc import Callable

from swarmlab.scenarios.appendix_e import build_appendix_e
from swarmlab.scenarios.churn import build_churn
from swarmlab.scenarios.experiment import Experiment
from swarmlab.scenarios.failover_build import build_failover
from swarmlab.scenarios.failure_rates_build import build_failure_rates
from swarmlab.scenarios.rebalance_build import build_rebalance, build_sim_vs_real
from swarmlab.scenarios.record_dht import build_record_dht
from swarmlab.scenarios.recovery_speed_build import build_recovery_speed
from swarmlab.scenarios.report_389 import build_report_389
from swarmlab.scenarios.scale import build_scale
from swarmlab.scenarios.soak_build import build_soak
from swarmlab.settings import RunSettings

BUILDERS: dict[str, Callable[[RunSettings], Experiment]] = {
    "failover": build_failover,
    "report_389": build_report_389,
    "appendix_e": build_appendix_e,
    "churn": build_churn,
    "scale": build_scale,
    "record_dht": build_record_dht,
    "failover_soak": build_soak,
    "rebalance": build_rebalance,
    "rebalance_under_load": build_rebalance,
    "sim_vs_real": build_sim_vs_real,
    "failure_rates": build_failure_rates,
    "recovery_speed": build_recovery_speed,
}


def build(settings: RunSettings) -> Experiment:
    """The experiment that the settings describe.

    :raises BadInput: if it cannot work; nothing has been started then
    """
    return BUILDERS[settings.experiment](settings)
