"""What +exp=scale shows: time and memory by the number of servers, and how they grow."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from swarmlab.analysis.checks import Finding, Verdict, assume, expect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Row = dict[str, Any]

DAY_S = 86400.0
MIB = 2**20


def measure(rows: Iterable[Row]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, dict[str, Any]]]]:
    """Growth by arm, and scenario to arm to metric; of several repeats the median."""
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["scenario"]][row["arm"]].append(row)
    scenarios = {
        name: {arm: _metrics(repeats) for arm, repeats in arms.items()} for name, arms in found.items()
    }
    arms = sorted({arm for of in scenarios.values() for arm in of})
    return {arm: _growth([of[arm] for of in scenarios.values() if arm in of]) for arm in arms}, scenarios


def _metrics(repeats: Sequence[Row]) -> dict[str, Any]:
    def middle(value: Any) -> float | None:
        known = [value(row) for row in repeats if value(row) is not None]
        return float(np.median(known)) if known else None

    return {
        "servers": repeats[0]["servers"],
        "repeats": len(repeats),
        "simulated_s": repeats[0]["simulated_s"],
        "wall_s": middle(lambda row: row["wall_s"]),
        "cpu_s": middle(lambda row: row["cpu_s"]),
        "wall_s_per_day": middle(lambda row: row["wall_s"] * DAY_S / row["simulated_s"]),
        "cpu_s_per_day": middle(lambda row: row["cpu_s"] * DAY_S / row["simulated_s"]),
        "events_per_cpu_s": middle(lambda row: row["events"] / row["cpu_s"]),
        "checks": middle(lambda row: row["checks"]),
        "moves": middle(lambda row: row["moves"]),
        "rss_mib": middle(lambda row: row["rss_bytes"] / MIB),
        "used_mib": middle(lambda row: (row["rss_bytes"] - row["idle_rss_bytes"]) / MIB),
        "swarm_tps_over_mean": middle(lambda row: row["swarm_tps_over_mean"]),
    }


def _growth(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Exponents of CPU time and memory in the number of servers, by least squares in logarithms; 1 is in proportion."""
    sizes = np.array([cell["servers"] for cell in cells], dtype=float)
    found: dict[str, Any] = {"largest": int(sizes.max())}
    for name, column in (("cpu_growth_exponent", "cpu_s"), ("memory_growth_exponent", "used_mib")):
        values = np.array([cell[column] for cell in cells], dtype=float)
        known = values > 0
        enough = len(set(sizes[known])) > 1
        found[name] = float(np.polyfit(np.log(sizes[known]), np.log(values[known]), 1)[0]) if enough else None
    return found


def check(
    growth: Mapping[str, Mapping[str, Any]],
    scenarios: Mapping[str, Mapping[str, Mapping[str, Any]]],
    expected: Mapping[str, Any],
    info: Mapping[str, Any],
    repeats: int,
) -> Iterator[Finding]:
    """Everything that was planned is there, and metrics are what ``expected.yaml`` says of cells that were run.

    Growth that cannot be told is unknown, whatever else holds: it is what the experiment is about.
    """
    for scenario in info["scenarios"]:
        for arm in info["arms"]:
            count = scenarios.get(scenario, {}).get(arm, {}).get("repeats", 0)
            yield assume(f"{scenario} / {arm}", count == repeats, f"{count} of {repeats} measurements")
    for arm, wanted in expected["arms"].items():
        measured = [scenario for scenario, arms in scenarios.items() if arm in arms]
        for metric, value in wanted.items():
            if arm in growth:
                yield _expect_growth(f"{arm} / {metric}", growth[arm].get(metric), value, measured)
    for scenario, entry in expected["scenarios"].items():
        for arm, wanted in entry["arms"].items():
            for metric, value in wanted.items():
                if arm in scenarios.get(scenario, {}):
                    yield expect(
                        f"{scenario} / {arm} / {metric}", scenarios[scenario][arm].get(metric), value
                    )


def _expect_growth(name: str, measured: float | None, wanted: Any, sizes: Iterable[str]) -> Finding:
    if measured is None:
        reason = (
            f"an exponent needs at least two sizes, as in 'scale.sizes=[100,1000]'; here: {', '.join(sizes)}"
        )
        return Finding(name, Verdict.UNKNOWN, reason)
    return expect(name, measured, wanted)
