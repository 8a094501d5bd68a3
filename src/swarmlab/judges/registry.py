"""Which module judges which experiment."""

from __future__ import annotations

from types import ModuleType

from swarmlab.errors import BadInput
from swarmlab.judges import (
    failover,
    failover_soak,
    failure_rates,
    rebalance,
    record_dht,
    recovery_speed,
    report_389,
    scale,
    sim_vs_real,
    simulated,
)

JUDGES: dict[str, ModuleType] = {
    "failover": failover,
    "failover_soak": failover_soak,
    "failure_rates": failure_rates,
    "recovery_speed": recovery_speed,
    "rebalance": rebalance,
    "rebalance_under_load": rebalance,
    "sim_vs_real": sim_vs_real,
    "report_389": report_389,
    "appendix_e": simulated,
    "churn": simulated,
    "scale": scale,
    "record_dht": record_dht,
}


def judge_of(exp: str, field: str = "exp") -> ModuleType:
    """
    :param field: where the name of the experiment stands
    :raises BadInput: if nobody judges this experiment
    """
    if exp not in JUDGES:
        raise BadInput(field, exp, f"one of {', '.join(JUDGES)}")
    return JUDGES[exp]
