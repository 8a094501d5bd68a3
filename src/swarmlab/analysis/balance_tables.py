"""Tables of placement experiments for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis.balance import OPTIMAL
from swarmlab.analysis.tables import add_arms, arms_table, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

COLUMNS = (
    ("tokens\n/s", "swarm_tps_mean", ".1f"),
    ("of\nbound", "swarm_tps_over_optimal_mean", ".1%"),
    ("over\noracle", "swarm_tps_over_oracle", ".2f"),
    ("time\nat 0", "zero_throughput_share", ".1%"),
    ("moves", "moves", ".0f"),
    ("no-op", "noop_reloads", ".0f"),
    ("blocks\nloaded", "blocks_loaded", ".0f"),
    ("redun-\ndant", "redundant_loads", ".0f"),
    ("cap.\nlost", "capacity_lost_share", ".1%"),
)
OF_MOVES = 4  # columns from here on mean nothing for the bound


def balance_table(summary: Mapping[str, Any], title: str) -> Table:
    """Scenario by arm: throughput, and what moving cost (of several populations the mean).

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    table = arms_table(title, [heading for heading, _, _ in COLUMNS])
    for scenario, arms in summary["scenarios"].items():
        add_arms(table, scenario, {arm: _cells(arm, metrics) for arm, metrics in arms.items()})
    return table


def _cells(arm: str, metrics: Mapping[str, Any]) -> list[str]:
    cells = [number(metrics[metric], form) for _, metric, form in COLUMNS]
    if arm == OPTIMAL:
        cells[OF_MOVES:] = ["-"] * len(cells[OF_MOVES:])
    return cells


def replay_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: who moves, where to, and what it costs.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    title = "Report 389: each server of the public swarm decides, all others stay"
    table = arms_table(title, ("no-op", "blocks\nloaded", "redun-\ndant", "minutes"), left=("moves",))
    for scenario, arms in summary["scenarios"].items():
        add_arms(table, scenario, {arm: _moves_and_cost(metrics) for arm, metrics in arms.items()})
    return table


def _moves_and_cost(metrics: Mapping[str, Any]) -> list[str]:
    return [
        ", ".join(metrics["moved"]) or "nobody moves",
        *(number(metrics[name], ".0f") for name in ("noop_reloads", "blocks_loaded", "redundant_loads")),
        number(metrics["reload_s"] / 60, ".1f"),
    ]
