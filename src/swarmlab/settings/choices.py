"""What there is to choose from: experiments, their arms, and the files of ``configs``."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / "configs"

# What each experiment can compare.
ARMS_OF = {
    "failover": ("petals", "issue_patch", "swarmlab", "swarmlab_standby"),
    "failover_soak": ("petals", "issue_patch", "swarmlab"),
    "failure_rates": ("restart", "cacheless", "swarmlab", "petals"),
    "recovery_speed": ("swarmlab", "swarmlab_standby"),
    "record_dht": ("swarm",),
}

PLACEMENT_ARMS = (
    "none", "join_only", "appendix_d_1", "appendix_d_10", "appendix_d_20", "petals", "recheck", "greedy_soft_min",
    "swarmlab",
)  # fmt: skip
REAL_PLACEMENT_ARMS = ("petals", "recheck", "pinned", "appendix_d", "swarmlab")
ARMS_OF |= dict.fromkeys(("rebalance", "rebalance_under_load", "sim_vs_real"), REAL_PLACEMENT_ARMS)
ARMS_OF |= {"report_389": PLACEMENT_ARMS, "scale": PLACEMENT_ARMS}
ARMS_OF |= dict.fromkeys(("appendix_e", "churn"), (*PLACEMENT_ARMS, "oracle"))

# Experiments that place files beside their servers.
STEERED = ("failure_rates", "rebalance", "rebalance_under_load", "sim_vs_real")

WITHOUT_SCENARIOS = ("failover_soak", "failure_rates", "recovery_speed", "record_dht", "scale")


def known_experiments() -> list[str]:
    return options("exp")


def options(group: str) -> list[str]:
    """Names of a config group's files."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
