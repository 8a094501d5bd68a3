"""Which module judges which experiment."""

from __future__ import annotations

from types import ModuleType

from swarmlab.errors import BadInput
from swarmlab.judges import appendix_e, failover, failover_soak, report_389

JUDGES: dict[str, ModuleType] = {
    "failover": failover,
    "failover_soak": failover_soak,
    "report_389": report_389,
    "appendix_e": appendix_e,
}


def judge_of(exp: str) -> ModuleType:
    """
    :raises BadInput: if nobody judges this experiment
    """
    if exp not in JUDGES:
        raise BadInput("run_dir", exp, f"a run of {', '.join(JUDGES)}")
    return JUDGES[exp]
