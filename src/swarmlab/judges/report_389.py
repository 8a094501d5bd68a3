"""Judges +exp=report_389."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis import replay
from swarmlab.analysis.balance_checks import check_plan
from swarmlab.analysis.balance_tables import replay_table
from swarmlab.analysis.checks import guard
from swarmlab.analysis.plots.view import view_figure
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import DamagedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.checks import Finding
    from swarmlab.record.load import Run

FIGURE_KINDS = ("blocks", "balance", "decisions", "reloads")
SHOWN = "records_back"  # the scenario of the report itself


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every number again from the stored history.

    :raises BadInput: if ``expected`` has no scenarios
    """
    require_mappings(expected, "scenarios")
    scenarios: dict[str, Any] = {}
    arms: dict[str, dict[str, Any]] = {}

    def findings() -> Iterator[Finding]:
        history = {kind: run.history(kind) for kind in FIGURE_KINDS}
        yield from check_plan(run.info)
        scenarios.update(replay.measure(history, run.info["arms"]))
        view = replay.measure_view(history)
        arms["view"] = view
        for arm in run.info["arms"]:
            arms[arm] = {
                f"{scenario}.{metric}": value
                for scenario, measured in scenarios.items()
                for metric, value in measured.get(arm, {}).items()
            }
        yield from replay.check(scenarios, view, expected, run.info)

    found = guard("record", findings)
    return Measured(arms, scenarios, tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    return replay_table(summary)


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """The throughput of every block as seen and as it was, and the reloads that follow."""
    del summary
    blocks, reloads = run.history("blocks"), run.history("reloads")
    if not blocks:
        raise DamagedRun(f"{run.source('blocks')} has no rows, or is not there")
    return view_figure(blocks, [row for row in reloads if row["scenario"] == SHOWN], run.info)
