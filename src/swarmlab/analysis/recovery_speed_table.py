"""Recoveries beside their floors, for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from swarmlab.analysis.tables import number, outcome_text

CAPTION = """\
floor: one connection and one prefill of the same history on the servers that took over, by petals' own code without \
a failure, of all failed spans at once; the fastest of the repeats. Medians, with their 95 % bootstrap interval. \
standby: seconds of servers and traffic of a whole session, spent before the failure; cache: their attention caches."""


def recovery_speed_table(summary: Mapping[str, Any]) -> Table:
    """Positions and failed spans by arm.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    title = "Recovery: seconds, beside the floor of the same recovery"
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", caption=CAPTION, caption_justify="left"
    )
    table.padding = 0
    for name in ("tokens", "spans", "arm", "outcome"):
        table.add_column(name, no_wrap=True)
    for name in ("n", "recovery\nms", "floor\nms", "times\nfloor", "replayed\ntokens", "standby\ns", "traffic\nMB",
                 "cache\nMB"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for arms in summary["scenarios"].values():
        for index, (arm, cell) in enumerate(arms.items()):
            table.add_row(
                str(cell["history_tokens"]) if index == 0 else "",
                str(cell["failed_spans"]) if index == 0 else "",
                arm,
                outcome_text(cell["outcome"]),
                str(cell["sessions"]),
                _thousandths(cell["recovery_s_median"]),
                _thousandths(cell["floor_s"]),
                with_interval(cell, "recovery_over_floor"),
                number(cell["tokens_replayed"], ".0f"),
                *costs(cell),
                end_section=index == len(arms) - 1,
            )
    return table


def with_interval(cell: Mapping[str, Any], name: str) -> str:
    value, low, high = cell[name], cell[f"{name}_low"], cell[f"{name}_high"]
    if value is None or low is None or high is None:
        return number(value, ".2f")
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def costs(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    """Seconds, megabytes of traffic and of caches; blanks without a standby."""
    if not cell["standby_tokens"]:
        return "-", "-", "-"
    return (
        number(cell["standby_s"], ".2f"),
        f"{cell['standby_bytes'] / 1e6:.2f}",
        f"{cell['cache_bytes'] / 1e6:.2f}",
    )


def _thousandths(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
