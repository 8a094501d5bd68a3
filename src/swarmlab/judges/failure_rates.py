"""Judges +exp=failure_rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.checks import guard
from swarmlab.analysis.failure_rates import Record
from swarmlab.analysis.failure_rates import measure as measure_failure_rates
from swarmlab.analysis.failure_rates_checks import check_failure_rates
from swarmlab.analysis.failure_rates_grid import How
from swarmlab.analysis.failure_rates_table import failure_rates_table
from swarmlab.analysis.plots.failure_rates import failure_rates_figure
from swarmlab.analysis.plots.repeats import Runs, repeats_figure, scenario_panels
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import Run

if TYPE_CHECKING:
    from rich.table import Table

    from swarmlab.analysis.checks import Finding

FIGURE_KINDS = ("steps", "faults", "failovers", "outcomes")


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every cell, from the raw rows.

    :raises BadInput: if ``expected`` lacks ``cells`` or ``arms``
    """
    require_mappings(expected, "cells", "arms")
    numbers: dict[str, Any] = {"arms": {}, "scenarios": {}}

    def findings() -> Iterator[Finding]:
        record = Record({kind: run.history(kind) for kind in run.kinds})
        numbers.update(measure_failure_rates(record))
        yield from check_failure_rates(record, numbers, expected, run.info)

    found = guard("record", findings)
    return Measured(numbers["arms"], numbers["scenarios"], tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    return failure_rates_table(summary)


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """The figure of a judged run, of matplotlib."""
    return failure_rates_figure(summary["scenarios"], run.info)


def draw_repeats(runs: Runs) -> Any:
    """What is left of each arm's speed, cell by cell, run after run: of cells with failures, for without any it is 1
    by definition."""
    lossy = [(info, {**summary, "scenarios": _lossy(summary["scenarios"])}) for info, summary in runs]
    panels = [
        replace(
            panel, computed=[_computed(summary["scenarios"].get(panel.scenario, {})) for _, summary in lossy]
        )
        for panel in scenario_panels(lossy, "ratio_to_failure_free")
    ]
    return repeats_figure(
        lossy, panels, "Unreliable servers, run after run",
        words="steps/s relative to the same run's failure-free rate (measured, or computed by the closed form)",
    )  # fmt: skip


def _lossy(scenarios: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {
        name: arms
        for name, arms in scenarios.items()
        if any(cell["failure_probability"] > 0 for cell in arms.values())
    }


def _computed(arms: Mapping[str, Any]) -> set[str]:
    """The arms of a cell whose number is no measurement."""
    return {arm for arm, cell in arms.items() if cell["how"] == How.SIMULATED}
