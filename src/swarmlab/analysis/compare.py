"""A run beside others of the same experiment, metric by metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swarmlab.analysis.stats import estimate

Summary = Mapping[str, Any]  # the content of a summary.json
ALL = "all"


def compare(mine: Summary, others: Sequence[Summary]) -> list[dict[str, Any]]:
    """One row for each scenario, arm and metric that both have.

    What an arm comes to over all scenarios is compared with runs of the same ones only.

    :return: rows with ``scenario`` ("all" for an arm over all of them), ``arm``, ``metric``, ``mine`` and ``ours``
        (median of numbers, the word that all share); of numbers also ``low`` and ``high`` (95 %, None with a single
        run), ``n`` and ``ratio`` of mine to ours; ``same`` for words, None for numbers
    """
    return [
        _row(scenario, arm, metric, value, [other for other in found if other is not None])
        for scenario, arm, metrics in _arms(mine)
        for metric, value in metrics.items()
        if (
            found := [
                _at(other, scenario, arm).get(metric)
                for other in others
                if _comparable(mine, other, scenario)
            ]
        )
        and any(f is not None for f in found)
    ]


def _arms(summary: Summary) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for arm, metrics in summary.get("arms", {}).items():
        yield ALL, arm, metrics
    for scenario, arms in summary.get("scenarios", {}).items():
        for arm, metrics in arms.items():
            yield scenario, arm, metrics


def _comparable(mine: Summary, other: Summary, scenario: str) -> bool:
    return scenario != ALL or set(mine.get("scenarios", {})) == set(other.get("scenarios", {}))


def _at(summary: Summary, scenario: str, arm: str) -> Mapping[str, Any]:
    arms = summary.get("arms", {}) if scenario == ALL else summary.get("scenarios", {}).get(scenario, {})
    return arms.get(arm, {})


def _row(scenario: str, arm: str, metric: str, mine: Any, ours: list[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "scenario": scenario, "arm": arm, "metric": metric, "mine": mine, "ours": ours[0], "low": None, "high": None,
        "n": len(ours), "ratio": None, "same": None,
    }  # fmt: skip
    if not all(_is_number(value) for value in ours):
        shared = ours[0] if all(value == ours[0] for value in ours) else "differs"
        return {**row, "ours": shared, "same": mine == shared}
    found = estimate(ours)
    if found is None:
        return row
    ratio = mine / found.value if _is_number(mine) and found.value else None
    return {**row, "ours": found.value, "low": found.low, "high": found.high, "ratio": ratio}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
