"""What +exp=recovery_speed shows: recoveries beside their floors, and what a warm standby gains and costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from swarmlab.analysis import metrics
from swarmlab.analysis.recovery_speed_grid import Cell
from swarmlab.analysis.stats import beside, estimate, finite, median, quantile

Row = metrics.Row

STAGES = ("detect_s", "reroute_s", "connect_s", "replay_s")
COSTS = ("standby_tokens", "standby_s", "standby_bytes", "cache_bytes")


@dataclass(frozen=True)
class Repeat:
    """One session with its failure.

    :param failovers: its recoveries; those of several spans go on at the same time
    :param floors: of all of them together, one row per take
    """

    result: Row | None
    failovers: Sequence[Row]
    floors: Sequence[Row]
    failures: int

    @cached_property
    def recovery_s(self) -> float | None:
        """For how long a span was being rebuilt, at least one (a row is written when its recovery ends).

        Servers are cut off one after the other, some milliseconds apart: what lies between is no recovery.
        """
        spans = sorted((row["t"] - row["total_s"], row["t"]) for row in self.failovers)
        covered_s, reached_s = 0.0, float("-inf")
        for begin_s, end_s in spans:
            covered_s += max(0.0, end_s - max(begin_s, reached_s))
            reached_s = max(reached_s, end_s)
        return covered_s if spans else None

    @cached_property
    def floor_s(self) -> float | None:
        """The fastest take: whatever slowed the others down was not part of the work."""
        return metrics.floor_seconds(self.floors)

    @property
    def calm_s(self) -> float | None:
        """The same work by our own code without a failure: the fastest take, too; None in older records."""
        return min(finite(row.get("calm_s") for row in self.floors), default=None)

    @property
    def typical_floor_s(self) -> float | None:
        return median(row["connect_s"] + row["prefill_s"] for row in self.floors)

    def over(self, floor_s: float | None) -> float | None:
        return self.recovery_s / floor_s if self.recovery_s is not None and floor_s else None

    def longest(self, stage: str) -> float | None:
        return max(finite(row.get(stage) for row in self.failovers), default=None)


@dataclass(frozen=True)
class Record:
    """The raw record of a run: rows per kind."""

    history: Mapping[str, Sequence[Row]]

    def rows(self, kind: str, cell: str, arm: str) -> list[Row]:
        rows = self.history.get(kind, ())
        return [row for row in rows if row.get("scenario") == cell and row["arm"] == arm]

    def repeats(self, cell: str, arm: str) -> list[Repeat]:
        outcomes, floors = self.rows("outcomes", cell, arm), self.rows("floors", cell, arm)
        failovers = metrics.recoveries(self.rows("failovers", cell, arm))
        failures = metrics.confirmed_failures(self.rows("faults", cell, arm))
        numbers = sorted({row["repeat"] for rows in (outcomes, failovers, failures) for row in rows})
        return [
            Repeat(
                next((row for row in outcomes if row["repeat"] == number), None),
                [row for row in failovers if row["repeat"] == number],
                [row for row in floors if row["repeat"] == number],
                sum(row["repeat"] == number for row in failures),
            )
            for number in numbers
        ]


def measure(record: Record, planned: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    """``arms`` and ``scenarios`` of ``summary.json``.

    :param planned: arm to its cells
    """
    scenarios: dict[str, dict[str, Any]] = {}
    pooled: dict[str, list[Repeat]] = {}
    for cell in dict.fromkeys(cell for cells in planned.values() for cell in cells):
        about = {"history_tokens": cell.history, "failed_spans": cell.n_failed}
        for arm in planned:
            if repeats := record.repeats(cell.name, arm):
                scenarios.setdefault(cell.name, {})[arm] = {**about, **measure_repeats(repeats)}
                pooled.setdefault(arm, []).extend(repeats)
    return {
        "arms": {arm: measure_repeats(repeats) for arm, repeats in pooled.items()},
        "scenarios": scenarios,
    }


def measure_repeats(repeats: Sequence[Repeat]) -> dict[str, Any]:
    """Medians over the failures of a cell, or of an arm; those that matter with their interval."""
    results = [repeat.result for repeat in repeats if repeat.result is not None]
    rows = [row for repeat in repeats for row in repeat.failovers]
    steps = [seconds for result in results for seconds in result["step_s"]]
    outcomes = [repeat.result["outcome"] if repeat.result is not None else "lost" for repeat in repeats]
    return {
        "sessions": len(repeats),
        "failures_injected": sum(repeat.failures for repeat in repeats),
        "recoveries": len(rows),
        "outcome": next((outcome for outcome in outcomes if outcome != "identical"), "identical"),
        "max_abs_diff": max(finite(result["max_abs_diff"] for result in results), default=None),
        **_spread("recovery_s_median", [repeat.recovery_s for repeat in repeats]),
        **{stage: median(repeat.longest(stage) for repeat in repeats) for stage in STAGES},
        "tokens_replayed": median(sum(row["tokens_replayed"] for row in one.failovers) for one in repeats),
        "floor_s": median(repeat.floor_s for repeat in repeats),
        **_spread("recovery_over_floor", [repeat.over(repeat.floor_s) for repeat in repeats]),
        "recovery_over_floor_p95": quantile((repeat.over(repeat.floor_s) for repeat in repeats), 0.95),
        **_spread("recovery_over_typical_floor", [one.over(one.typical_floor_s) for one in repeats]),
        **_spread("calm_over_floor", [_ratio(one.calm_s, one.floor_s) for one in repeats]),
        **_spread("recovery_over_calm", [_ratio(one.recovery_s, one.calm_s) for one in repeats]),
        "from_standby_share": sum(bool(row.get("from_standby")) for row in rows) / len(rows)
        if rows
        else None,
        "step_s_median": median(steps),
        **{name: median(result[name] for result in results) for name in COSTS},
    }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    found = estimate(values)
    return {name: found.value if found else None, **beside(name, found)}
