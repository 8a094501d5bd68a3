"""Recoveries beside their floors, for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from swarmlab.analysis.tables import number, outcome_text

CAPTION = """\
floor: one connection and one prefill of the same history on the servers that took over, by petals' own code without \
a failure, of all failed spans at once; the fastest of the repeats. Medians, with their 95 % bootstrap interval."""


def recovery_speed_table(summary: Mapping[str, Any]) -> Table:
    """Positions and failed spans by arm; below, what standbys cost.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    cells = [(arm, cell) for arms in summary["scenarios"].values() for arm, cell in arms.items()]
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Recovery, beside the floor of the same recovery",
        title_justify="left",
        caption="\n".join([CAPTION, *(costs(cell) for _, cell in cells if cell["standby_tokens"])]),
        caption_justify="left",
    )
    table.padding = 0
    for name in ("tokens", "spans", "arm", "outcome"):
        table.add_column(name, no_wrap=True)
    for name in ("n", "ms", "floor\nms", "times floor", "in peace,\ntimes floor", "replayed\ntokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm, cell in cells:
        table.add_row(
            str(cell["history_tokens"]),
            str(cell["failed_spans"]),
            arm,
            outcome_text(cell["outcome"]),
            str(cell["sessions"]),
            _thousandths(cell["recovery_s_median"]),
            _thousandths(cell["floor_s"]),
            with_interval(cell, "recovery_over_floor"),
            number(cell.get("calm_over_floor"), ".2f"),
            number(cell["tokens_replayed"], ".0f"),
        )
    return table


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
