"""Tables of +exp=rebalance and +exp=rebalance_under_load for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis.tables import add_arms, arms_table, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

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
    table = arms_table(title, [heading for heading, _, _ in columns])
    together = {"together": summary["arms"]} if summary["arms"] else {}
    for scenario, arms in {**summary["scenarios"], **together}.items():
        add_arms(table, scenario, {arm: _cells(metrics, columns) for arm, metrics in arms.items()})
    return table


def _cells(metrics: Mapping[str, Any], columns: Sequence[tuple[str, str, str]]) -> list[str]:
    return [number(metrics[metric], form) for _, metric, form in columns]


AGREEMENT: Columns = (
    ("moves", "moves", ".1f"),
    ("no-op", "noop_reloads", ".1f"),
    ("blocks\nloaded", "blocks_loaded", ".1f"),
    ("out of\nservice s", "out_of_service_s", ".1f"),
    ("tokens\n/s", "swarm_tps_mean", ".0f"),
)


def agreement_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    """Arm by world: the real run, the mean of the simulations, and their least and most."""
    headings = [heading for heading, _, _ in AGREEMENT]
    table = arms_table("The same events, real and simulated", headings, first="arm")
    for arm, metrics in arms.items():
        lines = {"real": "real", "simulated": "simulated", "low": " lowest", "high": " highest"}
        cells = {
            words: [number(metrics[f"{name}_{world}"], form) for _, name, form in AGREEMENT]
            for world, words in lines.items()
        }
        add_arms(table, arm, cells)
    return table
