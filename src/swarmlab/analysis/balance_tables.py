"""Tables of placement experiments for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from swarmlab.analysis.balance import OPTIMAL
from swarmlab.analysis.tables import number

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    ("tokens\n/s", "swarm_tps_mean", ".1f"),
    ("share of\nbound", "swarm_tps_over_optimal_mean", ".1%"),
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
    table = _table(title)
    for heading, _, _ in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for scenario, arms in summary["scenarios"].items():
        for index, (arm, metrics) in enumerate(arms.items()):
            cells = [number(metrics[metric], form) for _, metric, form in COLUMNS]
            if arm == OPTIMAL:
                cells[OF_MOVES:] = ["-"] * len(cells[OF_MOVES:])
            label = scenario if index == 0 else ""
            table.add_row(label, arm, *cells, end_section=index == len(arms) - 1)
    return table


def replay_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: who moves, where to, and what it costs.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    table = _table("Report 389: each server of the public swarm decides, all others stay")
    table.add_column("moves", overflow="fold")
    for heading in ("no-op", "blocks\nloaded", "redun-\ndant", "minutes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for scenario, arms in summary["scenarios"].items():
        for index, (arm, metrics) in enumerate(arms.items()):
            cells = [
                number(metrics[name], ".0f") for name in ("noop_reloads", "blocks_loaded", "redundant_loads")
            ]
            minutes = number(metrics["reload_s"] / 60, ".1f")
            label = scenario if index == 0 else ""
            moves = ", ".join(metrics["moved"]) or "nobody moves"
            table.add_row(label, arm, moves, *cells, minutes, end_section=index == len(arms) - 1)
    return table


def _table(title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.padding = 0  # the dividers are blanks already; so it fits 80 columns
    table.add_column("scenario", no_wrap=True)
    table.add_column("arm", no_wrap=True)
    return table
