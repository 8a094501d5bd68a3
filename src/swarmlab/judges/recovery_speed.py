"""Judges +exp=recovery_speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.checks import guard
from swarmlab.analysis.plots.recovery_speed import recovery_speed_figure
from swarmlab.analysis.plots.repeats import repeats_figure, scenario_panels
from swarmlab.analysis.recovery_speed import Record
from swarmlab.analysis.recovery_speed import measure as measure_recovery_speed
from swarmlab.analysis.recovery_speed_checks import check_recovery_speed
from swarmlab.analysis.recovery_speed_grid import cells_of
from swarmlab.analysis.recovery_speed_table import recovery_speed_table
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import Run

if TYPE_CHECKING:
    from rich.table import Table

    from swarmlab.analysis.checks import Finding
    from swarmlab.analysis.claim_numbers import Runs

FIGURE_KINDS = ("faults", "failovers", "floors", "outcomes")


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every cell, from the raw rows.

    :raises BadInput: if ``expected`` lacks ``all`` or ``cells``
    """
    require_mappings(expected, "all", "cells")
    numbers: dict[str, Any] = {"arms": {}, "scenarios": {}}

    def findings() -> Iterator[Finding]:
        record = Record({kind: run.history(kind) for kind in run.kinds})
        planned = {arm: cells_of(arm, run.config["speed"]) for arm in run.info["arms"]}
        numbers.update(measure_recovery_speed(record, planned))
        yield from check_recovery_speed(record, numbers, expected, planned, run.info)

    found = guard("record", findings)
    return Measured(numbers["arms"], numbers["scenarios"], tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    return recovery_speed_table(summary)


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """The figure of a judged run, of matplotlib."""
    record = Record({kind: run.history(kind) for kind in FIGURE_KINDS})
    return recovery_speed_figure(record, summary["scenarios"], run.info)


def draw_repeats(runs: Runs) -> Any:
    """The median recovery of each cell beside its floor, run after run."""
    return repeats_figure(
        runs, scenario_panels(runs, "recovery_over_floor"), "Recovery beside its floor, run after run",
        words="times the floor (one connection and one prefill without a failure: the line), median of a run's repeats",
        line_at=1.0,
    )  # fmt: skip
