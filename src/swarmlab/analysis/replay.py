"""What the replay of a public report shows: who moves, and what for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis.checks import assume, expect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from swarmlab.analysis.checks import Finding

Row = dict[str, Any]
DRIFT_TPS = 1.0  # the reporter's throughput differs by 0.76 between its two captures


def measure(
    history: Mapping[str, Iterable[Row]], arms: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Scenario to arm to metric, for arms that decided anything."""
    decisions, reloads = list(history["decisions"]), list(history["reloads"])
    measured: dict[str, dict[str, dict[str, Any]]] = {}
    for row in decisions:
        if row["arm"] in arms:
            measured.setdefault(row["scenario"], {}).setdefault(row["arm"], {})
    for scenario, found in measured.items():
        for arm in found:
            here = [row for row in reloads if (row["scenario"], row["arm"]) == (scenario, arm)]
            asked = {row["server"] for row in decisions if (row["scenario"], row["arm"]) == (scenario, arm)}
            found[arm] = _measure_arm(here, len(asked))
    return measured


def _measure_arm(reloads: list[Row], servers: int) -> dict[str, Any]:
    return {
        "servers": servers,
        "moves": len(reloads),
        "moved": [_words(row) for row in reloads],
        "noop_reloads": sum(bool(row["no_op"]) for row in reloads),
        "blocks_loaded": sum(row["loaded"] for row in reloads),
        "redundant_loads": sum(row["redundant"] for row in reloads),
        "reload_s": float(sum(row["out_of_service_s"] for row in reloads)),
        "reload_s_max": float(max((row["out_of_service_s"] for row in reloads), default=0.0)),
    }


def _words(row: Row) -> str:
    return f"{row['server']} {'back ' * row['no_op']}to {row['new_start']}:{row['new_end']}"


def measure_view(history: Mapping[str, Iterable[Row]]) -> dict[str, Any]:
    """Numbers about the view itself."""
    blocks, (balance,) = list(history["blocks"]), list(history["balance"])
    return {
        "blocks": len(blocks),
        "seen_swarm_tps": min(row["seen_tps"] for row in blocks),
        "was_swarm_tps": min(row["was_tps"] for row in blocks),
        "off_report_tps_max": max(abs(row["seen_tps"] - row["reported_tps"]) for row in blocks),
        "quality_petals": balance["quality_petals"],
        "quality_reported": balance["quality_reported"],
        "share_of_bound": balance["swarm_tps"] / balance["optimal_tps"],
    }


def check(
    measured: Mapping[str, Mapping[str, Mapping[str, Any]]],
    view: Mapping[str, Any],
    expected: Mapping[str, Any],
    info: Mapping[str, Any],
) -> Iterator[Finding]:
    """The view is the report's, everybody decided, and what was expected came out."""
    off, told = view["off_report_tps_max"], view["quality_reported"]
    yield assume(
        "view / published vector", off <= DRIFT_TPS, f"at most {off:.2f} tokens/s from what was published"
    )
    yield assume(
        "view / logged quality",
        view["quality_petals"] is not None and abs(view["quality_petals"] - told) < 5e-4,
        f"{view['quality_petals']:.1%} of {told:.1%} logged" if view["quality_petals"] else "none",
    )
    servers = max((row["servers"] for arms in measured.values() for row in arms.values()), default=0)
    for scenario in info["scenarios"]:
        for arm in info["arms"]:
            asked = measured.get(scenario, {}).get(arm, {}).get("servers", 0)
            yield assume(
                f"{scenario} / {arm} / servers", asked == servers > 0, f"{asked} of {servers} decided"
            )
    for metric, wanted in expected.get("view", {}).items():
        yield expect(f"view / {metric}", view.get(metric), wanted)
    for scenario, entry in expected["scenarios"].items():
        for arm, metrics in entry["arms"].items():
            if scenario in info["scenarios"] and arm in info["arms"]:
                for metric, wanted in metrics.items():
                    yield expect(
                        f"{scenario} / {arm} / {metric}",
                        measured.get(scenario, {}).get(arm, {}).get(metric),
                        wanted,
                    )
