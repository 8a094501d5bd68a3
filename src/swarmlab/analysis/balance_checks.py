"""Whether a simulated run can be believed, and whether it shows what it should."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.balance import OPTIMAL, ORACLE, bounds, parts
from swarmlab.analysis.checks import NOT_THERE, Finding, Verdict, assume, expect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from swarmlab.analysis.balance import Key, Part

ROUNDING = 1e-6


def check_plan(info: Mapping[str, Any]) -> Iterator[Finding]:
    """The run itself: complete, and simulated."""
    status, world = info.get("status"), info.get("world")
    yield assume("run / status", status == "complete", f"the run is {status}")
    yield assume("run / world", world == "simulated", f"the world is {world}")


def check_samples(
    history: Mapping[str, Iterable[dict[str, Any]]],
    *,
    scenarios: list[str],
    arms: list[str],
    repeats: int,
    samples: int,
) -> Iterator[Finding]:
    """Everything that was planned is there, all arms met the same servers, and nobody passes the bound."""
    found = parts(history)
    limits = bounds(found)
    for scenario in scenarios:
        for repeat in range(repeats):
            reference = _active(found.get((scenario, OPTIMAL, repeat)))
            for arm in (OPTIMAL, *arms):
                part = found.get((scenario, arm, repeat))
                name = f"{scenario} / {arm} / population {repeat}"
                count = len(part.balance) if part else 0
                yield assume(f"{name} / samples", count == samples, f"{count} of {samples} samples")
                same = _active(part) == reference
                yield assume(
                    f"{name} / servers", same, "the same servers" if same else "not the servers of others"
                )
    yield from _within_bound(found, limits)


def _active(part: Part | None) -> list[tuple[float, int]]:
    return [(row["t"], row["n_active"]) for row in part.balance] if part else []


def _within_bound(
    found: Mapping[Key, Part], limits: Mapping[tuple[str, int], Mapping[float, float]]
) -> Iterator[Finding]:
    above = [
        f"{scenario} / {arm} at {row['t']:g} s"
        for (scenario, arm, repeat), part in found.items()
        for row in part.balance
        if row["swarm_tps"]
        > limits.get((scenario, repeat), {}).get(row["t"], float("inf")) * (1 + ROUNDING) + ROUNDING
    ]
    yield assume("bound", not above, f"passed by {above[0]}" if above else "no arm passes it")


def without_oracle(metrics: Mapping[str, Any], was_asked: bool) -> Mapping[str, Any]:
    """Metrics without the ratios to an oracle that the run was not asked for."""
    if was_asked:
        return metrics
    return {name: value for name, value in metrics.items() if not name.endswith(f"_over_{ORACLE}")}


def check_expected(
    scenarios: Mapping[str, Mapping[str, Mapping[str, Any]]], expected: Mapping[str, Any], arms: list[str]
) -> Iterator[Finding]:
    """Metrics against ``expected.yaml``; what it says of scenarios and arms that were not run is left out."""
    for scenario, entry in expected["scenarios"].items():
        if scenario not in scenarios:
            continue
        measured = scenarios[scenario]
        for arm, metrics in entry.get("arms", {}).items():
            if arm in (*arms, OPTIMAL):
                for metric, wanted in without_oracle(metrics, ORACLE in arms).items():
                    yield expect(f"{scenario} / {arm} / {metric}", measured.get(arm, {}).get(metric), wanted)
        for metric, orders in entry.get("orders", {}).items():
            for order in orders:
                yield from check_order(scenario, measured, metric, order, arms)


def check_order(
    scenario: str,
    measured: Mapping[str, Mapping[str, Any]],
    metric: str,
    order: Sequence[str],
    arms: Collection[str],
) -> Iterator[Finding]:
    """Each arm is at least as high as the next one; of those that were not asked for, nothing is said.

    :param arms: what was asked for
    """
    for arm in order:
        if arm in arms and arm not in measured:
            yield Finding(f"{scenario} / {arm} / {metric}", Verdict.UNKNOWN, NOT_THERE)
    for higher, lower in pairwise(arm for arm in order if arm in measured):
        name = f"{scenario} / {metric}: {higher} >= {lower}"
        a, b = measured[higher][metric], measured[lower][metric]
        if a is None or b is None:
            yield Finding(name, Verdict.UNKNOWN, "not available")
        else:
            yield Finding(name, Verdict.HOLDS if a >= b else Verdict.FAILS, f"{a:.4g} and {b:.4g}")
