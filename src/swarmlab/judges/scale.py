"""Judges +exp=scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis import scale
from swarmlab.analysis.balance_checks import check_plan
from swarmlab.analysis.checks import guard
from swarmlab.analysis.plots.scale import scale_figure
from swarmlab.analysis.tables import add_arms, arms_table, number
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.checks import Finding
    from swarmlab.record.load import Run

FIGURE_KINDS = ("speed",)
COLUMNS = (
    ("CPU s", "cpu_s", ".1f"),
    ("CPU s\n/ day", "cpu_s_per_day", ".0f"),
    ("wall s\n/ day", "wall_s_per_day", ".0f"),
    ("events\n/ CPU s", "events_per_cpu_s", ",.0f"),
    ("MiB", "rss_mib", ".0f"),
    ("moves", "moves", ".0f"),
    ("weakest\n/ mean", "swarm_tps_over_mean", ".2f"),
)


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every number again from the stored history.

    :raises BadInput: if ``expected`` lacks ``arms`` or ``scenarios``
    """
    require_mappings(expected, "arms", "scenarios")
    numbers: dict[str, Any] = {"arms": {}, "scenarios": {}}

    def findings() -> Iterator[Finding]:
        yield from check_plan(run.info)
        numbers["arms"], numbers["scenarios"] = scale.measure(run.history("speed"))
        repeats = run.config["sim"]["repeats"]
        yield from scale.check(numbers["arms"], numbers["scenarios"], expected, run.info, repeats)

    found = guard("record", findings)
    return Measured(numbers["arms"], numbers["scenarios"], tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    headings = [heading for heading, _, _ in COLUMNS]
    shown = arms_table("Simulating swarms of any size", headings, first="servers\n arm")
    for arms in summary["scenarios"].values():
        cells = {
            arm: [number(metrics[metric], form) for _, metric, form in COLUMNS]
            for arm, metrics in arms.items()
        }
        add_arms(shown, f"{next(iter(arms.values()))['servers']:,}", cells)
    return shown


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """Time and memory by the number of servers."""
    return scale_figure(summary, run.info)
