"""Tables for the terminal. Nothing in them is told by colour alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from swarmlab.analysis.checks import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLORS = {"identical": "green", "wrong": "red", "exception": "yellow", "hang": "yellow"}
MARKS = {Verdict.HOLDS: "ok", Verdict.FAILS: "FAILS", Verdict.UNKNOWN: "UNKNOWN"}


def comparison_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: how it ended, what was right, and what the recovery cost.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    table = Table(box=box.SIMPLE_HEAD, title="Failover: the same failure, arm by arm", title_justify="left")
    table.padding = 0  # the dividers are blanks already; so it fits 80 columns
    for name in ("scenario", "arm", "outcome"):
        table.add_column(name, no_wrap=True)
    for name in ("tokens\nright", "max\ndiff", "to right\ntoken s", "recovery\ns", "times\nfloor"):
        table.add_column(name, justify="right", no_wrap=True)
    for scenario, arms in summary["scenarios"].items():
        for index, (arm, metrics) in enumerate(arms.items()):
            table.add_row(
                scenario if index == 0 else "",
                arm,
                outcome_text(metrics["outcome"]),
                number(metrics["tokens_identical_ratio"], ".0%"),
                number(metrics["max_abs_diff"], ".2g"),
                number(metrics["fault_to_correct_s"], ".2f"),
                number(metrics["recovery_s_median"], ".2f"),
                times(metrics["recovery_over_floor"]),
                end_section=index == len(arms) - 1,
            )
    return table


def findings_table(findings: Sequence[Finding]) -> Table:
    """What was checked, assumptions first."""
    table = Table(box=box.SIMPLE_HEAD, title="Checks", title_justify="left")
    for name in ("", "what", "why"):
        table.add_column(name, overflow="fold")
    for finding in sorted(findings, key=lambda finding: not finding.assumption):
        table.add_row(MARKS[finding.verdict], Text(finding.name), Text(finding.reason))
    return table


def outcome_text(outcome: str | None) -> Text:
    return Text(outcome or "unknown", style=COLORS.get(outcome or "", "bold"))


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def times(value: float | None) -> str:
    """A ratio in few characters: waiting for petals' timeouts is thousands of floors."""
    return number(value, ".1f" if value is None or value < 100 else ".0f")
