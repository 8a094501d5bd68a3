"""From the raw record of +exp=failure_rates to steps per second: measured, or by the closed form where a cell was not
run. Every number says which of the two it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from swarmlab.analysis import failure_rates_model as model
from swarmlab.analysis import metrics
from swarmlab.analysis.failure_rates_grid import Cell, How
from swarmlab.analysis.paper_table1 import paper_cell, paper_ratio
from swarmlab.analysis.stats import finite, median

Row = Mapping[str, Any]
PLAIN = "plain"


@dataclass(frozen=True)
class Record:
    """The rows of a run.

    :param history: per kind
    """

    history: Mapping[str, Sequence[Row]]

    def rows(self, kind: str, cell: str, arm: str) -> list[Row]:
        rows = self.recoveries if kind == "failovers" else self.history.get(kind, ())
        return [row for row in rows if row.get("scenario") == cell and row["arm"] == arm]

    @cached_property
    def recoveries(self) -> list[Row]:
        return metrics.recoveries(self.history.get("failovers", ()))

    @cached_property
    def cells(self) -> list[Cell]:
        """Those that the record knows, in the order in which they were begun."""
        rows = self.history.get("outcomes", ())
        return list(dict.fromkeys(Cell(row["length"], row["p"]) for row in rows))

    @cached_property
    def arms(self) -> list[str]:
        rows = self.history.get("outcomes", ())
        return [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != PLAIN]

    def outcomes(self, cell: Cell, arm: str) -> list[Row]:
        return self.rows("outcomes", cell.name, arm)

    def finished(self, cell: Cell, arm: str) -> list[Row]:
        return [row for row in self.outcomes(cell, arm) if row["outcome"] == "done" and row["elapsed_s"]]

    def failures(self, cell: Cell, arm: str) -> int:
        """Failures that the clients tell of; a recovery that failed in turn tells of several."""
        return sum(len(row.get("failed") or (1,)) for row in self.rows("failovers", cell.name, arm))

    def tokens(self, cell: Cell, arm: str, repeat: int) -> metrics.Tokens:
        """What the last attempt of a generation produced."""
        rows = [row for row in self.rows("steps", cell.name, arm) if row.get("repeat", 0) == repeat]
        last = max((row["session"] for row in rows), default=0)
        return metrics.tokens_of([row for row in rows if row["session"] == last])

    def reference(self, cell: Cell) -> metrics.Tokens:
        """What plain transformers gives for the same prefix and length."""
        return self.tokens(Cell(cell.length, 0.0), PLAIN, 0)

    def costs(self, arm: str, length: int) -> model.Costs | None:
        """What steps (at this length) and failures (at any) of this arm took; None before it ran without failures."""
        free = self.finished(Cell(length, 0.0), arm)
        if not free:
            return None
        step_s = sum(row["elapsed_s"] for row in free) / (length * len(free))
        if arm == "cacheless":  # a failure is one more step, and counted so
            return model.Costs(step_s)
        rows = [row for row in self.recoveries if row["arm"] == arm]
        histories = [float(row["tokens_replayed"]) for row in rows]
        seconds = [float(row["total_s"]) for row in rows]
        if arm == "restart":  # what is lost is run again and counted as steps: the history costs nothing more
            return model.Costs(step_s, model.fit_failure_costs([0.0] * len(seconds), seconds)[0])
        return model.Costs(step_s, *model.fit_failure_costs(histories, seconds))


def measure(record: Record) -> dict[str, Any]:
    """``scenarios``: cell to arm to metric; ``arms``: arm to metric, over all cells."""
    scenarios = {
        cell.name: {arm: cell_metrics(record, cell, arm) for arm in record.arms if record.outcomes(cell, arm)}
        for cell in record.cells
    }
    arms = {
        arm: _over_cells([cells[arm] for cells in scenarios.values() if arm in cells]) for arm in record.arms
    }
    return {"scenarios": scenarios, "arms": arms}


def cell_metrics(record: Record, cell: Cell, arm: str) -> dict[str, Any]:
    """The numbers of one cell; what is not available is None."""
    rows, finished = record.outcomes(cell, arm), record.finished(cell, arm)
    outcomes = [row["outcome"] for row in rows]
    costs = record.costs(arm, cell.length)
    closed_s = None if costs is None else model.expected_s(arm, cell.length, cell.p, costs)
    measured_tps = _rate(cell, finished) if len(finished) == len(rows) else None
    rate_tps, how = measured_tps, str(How.MEASURED)
    if measured_tps is None:
        how = str(rows[-1]["how"])
        rate_tps = cell.length / closed_s if closed_s and how != How.BOUNDED else None
    # without failures petals is the restart arm: the same server sessions
    free_arm = "restart" if arm == "petals" else arm
    free_tps = _rate(cell, record.finished(Cell(cell.length, 0.0), free_arm))
    paper = paper_cell(arm, cell.length, cell.p)
    return {
        "outcome": outcomes[0] if len(set(outcomes)) == 1 else "mixed",
        "how": how,
        "length_tokens": cell.length,
        "failure_probability": cell.p,
        "sessions": sum(outcome != "simulated" for outcome in outcomes),
        "steps_per_s": rate_tps,
        "ratio_to_failure_free": _ratio(rate_tps, free_tps),
        "paper_steps_per_s": paper.steps_per_s if paper else None,
        "paper_ratio": paper_ratio(arm, cell.length, cell.p),
        "paper_source": paper.source if paper else None,
        "tokens_identical_ratio": _identical(record, cell, arm, finished),
        "failures": record.failures(cell, arm),
        "failures_expected": _expected_failures(cell, arm, finished),
        "resets_confirmed": sum(
            row["stage"] == "confirm" and row["ok"] is True for row in record.rows("faults", cell.name, arm)
        ),
        "recovery_s_median": median(row["total_s"] for row in record.rows("failovers", cell.name, arm)),
        "closed_form_s": closed_s,
        "closed_form_error": _error(closed_s, cell, measured_tps),
        "cost_error": _error(_explained_s(record, cell, arm, costs, finished), cell, measured_tps),
        "tokens_produced": max((row["tokens"] or 0 for row in rows), default=0),
        "error": next((row["error"] for row in rows if row["error"]), None),
    }


def _explained_s(
    record: Record, cell: Cell, arm: str, costs: model.Costs | None, finished: Sequence[Row]
) -> float | None:
    """Mean seconds by the same costs, with the failures and steps that really happened: what chance leaves out."""
    if costs is None or not finished or len(finished) < len(record.outcomes(cell, arm)):
        return None
    failures = record.rows("failovers", cell.name, arm)
    steps = sum(row["steps_run"] for row in finished)
    if arm == "cacheless":
        steps += len(failures)
    history = 0.0 if arm != "swarmlab" else sum(row["tokens_replayed"] for row in failures)
    total_s = steps * costs.step_s + len(failures) * costs.failure_s + history * costs.failure_token_s
    return total_s / len(finished)


def _rate(cell: Cell, finished: Sequence[Row]) -> float | None:
    """Positions per second of all repeats together."""
    seconds = sum(row["elapsed_s"] for row in finished)
    return len(finished) * cell.length / seconds if seconds else None


def _ratio(rate_tps: float | None, free_tps: float | None) -> float | None:
    return rate_tps / free_tps if rate_tps is not None and free_tps else None


def _error(predicted_s: float | None, cell: Cell, measured_tps: float | None) -> float | None:
    """Relative, of predicted seconds; None where nothing was measured or nothing predicted (p = 0 is the input)."""
    if predicted_s is None or measured_tps is None or cell.p == 0:
        return None
    return predicted_s / (cell.length / measured_tps) - 1


def _expected_failures(cell: Cell, arm: str, finished: Sequence[Row]) -> float | None:
    return len(finished) * model.expected_failures(arm, cell.length, cell.p) if finished else None


def _identical(record: Record, cell: Cell, arm: str, finished: Sequence[Row]) -> float | None:
    """Share of the ids that plain transformers gives, in the generations that finished."""
    reference = record.reference(cell)
    if not finished or not reference:
        return None
    found = [
        metrics.identical_tokens(record.tokens(cell, arm, row.get("repeat", 0)), reference)
        for row in finished
    ]
    return sum(found) / (cell.length * len(found))


def _over_cells(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [abs(error) for error in finite(cell["closed_form_error"] for cell in cells)]
    cost_errors = [abs(error) for error in finite(cell["cost_error"] for cell in cells)]
    shares = finite(cell["tokens_identical_ratio"] for cell in cells)
    return {
        "sessions": sum(cell["sessions"] for cell in cells),
        "failures_injected": sum(cell["resets_confirmed"] for cell in cells),
        "tokens_identical_ratio": min(shares, default=None),
        "closed_form_error_max": max(errors, default=None),
        "cost_error_max": max(cost_errors, default=None),
        "cells_measured": sum(cell["how"] == How.MEASURED for cell in cells),
        "cells_simulated": sum(cell["how"] == How.SIMULATED for cell in cells),
        "cells_bounded": sum(cell["how"] == How.BOUNDED for cell in cells),
    }
