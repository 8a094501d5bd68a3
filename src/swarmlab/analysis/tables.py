"""Tables for the terminal. Nothing in them is told by colour alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from swarmlab.analysis.checks import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLORS = {"identical": "green", "wrong": "red", "exception": "yellow", "hang": "yellow"}
MARKS = {Verdict.HOLDS: "ok", Verdict.FAILS: "FAILS", Verdict.UNKNOWN: "UNKNOWN"}


def arms_table(
    title: str, headings: Iterable[str], *, left: Iterable[str] = (), first: str = "scenario\n arm"
) -> Table:
    """An empty table of arms below what they were compared in, so narrow that most fit 80 columns.

    Where one does not fit, on a narrow terminal, cells go on in a further line: nothing is cut off.

    :param headings: of columns of numbers, after those of words in ``left``
    """
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.padding = 0  # the dividers are blanks already
    for name in (first, *left):
        table.add_column(name, overflow="fold")
    for name in headings:
        table.add_column(name, justify="right", overflow="fold")
    return table


def add_arms(table: Table, label: str, arms: Mapping[str, Sequence[str | Text]]) -> None:
    """A line with the label, and below it one for each arm.

    :param arms: arm to its cells
    """
    table.add_row(Text(label, style="bold"))
    for index, (arm, cells) in enumerate(arms.items()):
        table.add_row(Text(f" {arm}"), *cells, end_section=index == len(arms) - 1)


def comparison_table(summary: Mapping[str, Any]) -> Table:
    """Scenario by arm: how it ended, what was right, and what the recovery cost.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    headings = ("tokens\nright", "max\ndiff", "to right\ntoken s", "recovery\ns", "times\nfloor")
    table = arms_table("Failover: the same failure, arm by arm", headings, left=("outcome",))
    for scenario, arms in summary["scenarios"].items():
        add_arms(table, scenario, {arm: _outcome_and_cost(metrics) for arm, metrics in arms.items()})
    return table


def _outcome_and_cost(metrics: Mapping[str, Any]) -> list[str | Text]:
    return [
        outcome_text(metrics["outcome"]),
        number(metrics["tokens_identical_ratio"], ".0%"),
        number(metrics["max_abs_diff"], ".2g"),
        seconds_to_correct(metrics, ".2f"),
        number(metrics["recovery_s_median"], ".2f"),
        times(metrics["recovery_over_floor"]),
    ]


def seconds_to_correct(metrics: Mapping[str, Any], form: str) -> str:
    """``never`` only where there was something to recover from, and it is known how that ended."""
    if metrics["fault_to_correct_s"] is None:
        return "never" if metrics["failures_injected"] and metrics["outcome"] else "-"
    return format(metrics["fault_to_correct_s"], form)


def texts_table(scenario: str, texts: Mapping[str, Sequence[str]]) -> Table:
    """What each arm wrote, side by side; where a text leaves the failure-free one, the rest is marked.

    :param texts: arm to the text of each row of the batch; the failure-free ``reference`` is compared with
    """
    table = Table(box=box.SIMPLE_HEAD, title=f"{scenario}: what was written", title_justify="left")
    table.add_column("arm", overflow="fold")
    table.add_column("text (>>> from here on it differs from the failure-free run)", overflow="fold")
    for arm, rows in texts.items():
        for index, row in enumerate(rows):
            table.add_row(arm if index == 0 else "", marked_text(row, _nth(texts.get("reference"), index)))
    return table


def marked_text(text: str, reference: str | None) -> Text:
    """A text with a mark where it leaves the reference."""
    pairs = enumerate(zip(text, reference if reference is not None else text, strict=False))
    common = next((index for index, (ours, theirs) in pairs if ours != theirs), None)
    if common is None:
        common = len(text) if reference is None else min(len(text), len(reference))
    marked = Text(text[:common].replace("\n", " "))
    if common < len(text):
        marked.append(" >>> ", style="bold").append(text[common:].replace("\n", " "), style="red")
    elif reference is not None and len(text) < len(reference):
        marked.append(" [ends here]", style="bold")
    return marked


def _nth(rows: Sequence[str] | None, index: int) -> str | None:
    return rows[index] if rows is not None and index < len(rows) else None


def findings_table(findings: Sequence[Finding]) -> Table:
    """What was checked, assumptions first."""
    table = Table(box=box.SIMPLE_HEAD, title="Checks", title_justify="left")
    for name in ("", "what", "why"):
        table.add_column(name, overflow="fold")
    for finding in sorted(findings, key=lambda finding: not finding.assumption):
        table.add_row(MARKS[finding.verdict], Text(finding.name), Text(finding.reason))
    return table


def tree_table(found: Mapping[str, Sequence[Finding]], verdicts: Mapping[str, Verdict]) -> Table:
    """One line for each published experiment: what was checked of it."""
    table = Table(box=box.SIMPLE_HEAD, title="Published results", title_justify="left")
    for name in ("", "what", "checks"):
        table.add_column(name, overflow="fold")
    for name, findings in found.items():
        counts = Counter(finding.verdict for finding in findings)
        words = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
        table.add_row(MARKS[verdicts[name]], name, words)
    return table


def outcome_text(outcome: str | None) -> Text:
    return Text(outcome or "unknown", style=COLORS.get(outcome or "", "bold"))


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def times(value: float | None) -> str:
    """A ratio in few characters: waiting for petals' timeouts is thousands of floors."""
    return number(value, ".1f" if value is None or value < 100 else ".0f")
