"""Recoveries beside their floors, for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from swarmlab.analysis.tables import add_arms, arms_table, number, outcome_text

CAPTION = """\
floor: one connection and one prefill of the same history on the servers that took over, by petals' own code without \
a failure, of all failed spans at once; the fastest of the repeats. Medians, with their 95 % bootstrap interval."""


def recovery_speed_table(summary: Mapping[str, Any]) -> Table:
    """Positions and failed spans by arm; below, what standbys cost.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    headings = ("n", "ms", "floor\nms", "times floor", "the same\nin peace", "tokens\nreplayed")
    title = "Recovery, beside the floor of the same recovery"
    table = arms_table(title, headings, left=("outcome",), first="tokens, spans\n arm")
    costly = [
        cell for arms in summary["scenarios"].values() for cell in arms.values() if cell["standby_tokens"]
    ]
    table.caption, table.caption_justify = "\n".join([CAPTION, *map(costs, costly)]), "left"
    for arms in summary["scenarios"].values():
        of = next(iter(arms.values()))
        label = f"{of['history_tokens']}, {of['failed_spans']}"
        add_arms(table, label, {arm: _cells(cell) for arm, cell in arms.items()})
    return table


def _cells(cell: Mapping[str, Any]) -> list[str | Text]:
    return [
        outcome_text(cell["outcome"]),
        str(cell["sessions"]),
        _thousandths(cell["recovery_s_median"]),
        _thousandths(cell["floor_s"]),
        with_interval(cell, "recovery_over_floor"),
        number(cell.get("calm_over_floor"), ".2f"),
        number(cell["tokens_replayed"], ".0f"),
    ]


def with_interval(cell: Mapping[str, Any], name: str) -> str:
    value, low, high = cell[name], cell[f"{name}_low"], cell[f"{name}_high"]
    if value is None or low is None or high is None:
        return number(value, ".2f")
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def costs(cell: Mapping[str, Any]) -> str:
    """What standbys took in a session, in words."""
    where = f"{cell['history_tokens']} tokens, {cell['failed_spans']} failed"
    return (
        f"standbys, {where}: {cell['standby_tokens']:.0f} tokens fed, "
        f"{cell['standby_s']:.2f} s of servers, {cell['standby_bytes'] / 1e6:.2f} MB of traffic, "
        f"{cell['cache_bytes'] / 1e6:.2f} MB of caches; a step takes {1000 * (cell['step_s_median'] or 0):.0f} ms"
    )


def _thousandths(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
