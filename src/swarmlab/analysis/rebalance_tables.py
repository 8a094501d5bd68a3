"""Tables of +exp=rebalance and +exp=rebalance_under_load for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from swarmlab.analysis.tables import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Columns = tuple[tuple[str, str, str], ...]

MOVES: Columns = (
    ("share of\nbound", "swarm_tps_over_optimal_mean", ".0%"),
    ("time\nat 0", "zero_throughput_share", ".0%"),
    ("moves", "moves", "d"),
    ("no-op", "noop_reloads", "d"),
    ("loaded", "blocks_loaded", "d"),
    ("redun-\ndant", "redundant_loads", "d"),
    ("out of\nserv. s", "out_of_service_s", ".1f"),
    ("lost\nblk s", "lost_block_seconds", ".0f"),
)
LOAD: Columns = (
    ("tokens\n/s", "delivered_tps_mean", ".1f"),
    ("tokens", "tokens", "d"),
    ("wrong", "tokens_wrong", "d"),
    ("sessions", "sessions", "d"),
    ("broken", "sessions_broken", "d"),
    ("moves", "moves", "d"),
    ("stalls", "stalls", "d"),
    ("longest\nstall s", "stall_s_max", ".1f"),
)


def moves_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: throughput, and what moving cost.

    :param summary: a mapping with ``scenarios`` and ``arms``, as in ``summary.json``
    """
    return _table(summary, "Rebalancing on real servers: the same events, arm by arm", MOVES)


def load_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: what clients felt of it."""
    return _table(summary, "Rebalancing while clients generate (swarmlab's session in every arm)", LOAD)


def _table(summary: Mapping[str, Any], title: str, columns: Columns) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.padding = 0  # the dividers are blanks already; so it fits 80 columns
    table.add_column("scenario", no_wrap=True)
    table.add_column("arm", no_wrap=True)
    for heading, _, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for scenario, arms in summary["scenarios"].items():
        _add(table, scenario, arms, columns)
    if summary["arms"]:
        _add(table, "together", summary["arms"], columns)
    return table


def _add(table: Table, label: str, arms: Mapping[str, Any], columns: Sequence[tuple[str, str, str]]) -> None:
    for index, (arm, metrics) in enumerate(arms.items()):
        cells = [number(metrics[metric], form) for _, metric, form in columns]
        table.add_row(label if index == 0 else "", arm, *cells, end_section=index == len(arms) - 1)


AGREEMENT: Columns = (
    ("moves", "moves", ".1f"),
    ("no-op", "noop_reloads", ".1f"),
    ("blocks\nloaded", "blocks_loaded", ".1f"),
    ("out of\nservice s", "out_of_service_s", ".1f"),
    ("tokens\n/s", "swarm_tps_mean", ".0f"),
)


def agreement_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    """Arm by world: the real run, the mean of the simulations, and their least and most."""
    table = Table(box=box.SIMPLE_HEAD, title="The same events, real and simulated", title_justify="left")
    table.padding = 0
    table.add_column("arm", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading, _, _ in AGREEMENT:
        table.add_column(heading, justify="right", no_wrap=True)
    for arm, metrics in arms.items():
        for line, world in enumerate(("real", "simulated", "low", "high")):
            cells = [number(metrics[f"{name}_{world}"], form) for _, name, form in AGREEMENT]
            words = world if line < 2 else f"  {world}est"
            table.add_row(arm if line == 0 else "", words, *cells, end_section=line == 3)
    return table
