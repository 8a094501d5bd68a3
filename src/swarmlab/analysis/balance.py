"""What a simulated run shows of each arm: throughput against the bound, and what moving cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from swarmlab.analysis.stats import beside, estimate, paired_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OPTIMAL, ORACLE, OURS = "optimal", "oracle", "swarmlab"
RETURN_S = 3600.0  # a server that comes back within this to the span it left has oscillated

# What throughput is compared with, sample by sample, and its column in the rows of the bound: a certain bound, the
# best placement found (both with all moves free), and a certain bound that pays for each server's first load.
REFERENCES = {"optimal": "optimal_tps", "best_found": "swarm_tps", "loaded": "loaded_tps"}

Row = dict[str, Any]


@dataclass
class Part:
    """The rows of one arm in one scenario with one population, in the order of time."""

    balance: list[Row] = field(default_factory=list)
    reloads: list[Row] = field(default_factory=list)
    decisions: list[Row] = field(default_factory=list)


Key = tuple[str, str, int]  # scenario, arm, repeat


def parts(history: Mapping[str, Iterable[Row]]) -> dict[Key, Part]:
    """Sort rows of ``balance``, ``reloads`` and ``decisions`` by scenario, arm and repeat."""
    found: dict[Key, Part] = defaultdict(Part)
    for kind in ("balance", "reloads", "decisions"):
        for row in history.get(kind, ()):
            getattr(found[row["scenario"], row["arm"], row["repeat"]], kind).append(row)
    return dict(found)


def bounds(found: Mapping[Key, Part], name: str = "optimal_tps") -> dict[tuple[str, int], dict[float, float]]:
    """Upper bound of the swarm throughput by time, for each scenario and repeat.

    :param name: ``optimal_tps``, a certified bound, or ``swarm_tps``, what the best placement found has
    """
    return {
        (scenario, repeat): {row["t"]: row[name] for row in part.balance if name in row}
        for (scenario, arm, repeat), part in found.items()
        if arm == OPTIMAL
    }


def measure(
    history: Mapping[str, Iterable[Row]], *, warm_up_s: float, sample_every_s: float
) -> dict[str, dict[str, list[Row]]]:
    """Scenario to arm to what it comes to in each population, a row with ``repeat`` for each."""
    found = parts(history)
    limits = {name: bounds(found, column) for name, column in REFERENCES.items()}
    measured: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for (scenario, arm, repeat), part in found.items():
        references = {name: known.get((scenario, repeat), {}) for name, known in limits.items()}
        row = _measure_part(part, references, warm_up_s, sample_every_s)
        measured[scenario][arm].append({"repeat": repeat, **row})
    return measured


def summed_up(measured: Mapping[str, Mapping[str, list[Row]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Scenario to arm to metric; of several populations the mean, with a 95 % interval where arms are compared.

    :param measured: as :func:`measure` returns it
    """
    return {
        scenario: {arm: _over_repeats(rows) | _compared(rows, arms) for arm, rows in arms.items()}
        for scenario, arms in measured.items()
    }


def by_repeat(measured: Mapping[str, Mapping[str, list[Row]]]) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """Scenario to arm to metric to its values, one of each population, in their order; nothing of a single one.

    :param measured: rows with ``repeat``
    """
    return {
        scenario: {
            arm: {
                name: [row[name] for row in sorted(rows, key=lambda row: row["repeat"])]
                for name in sorted(set(rows[0]) - {"repeat"})
            }
            for arm, rows in arms.items()
            if len(rows) > 1
        }
        for scenario, arms in measured.items()
    }


def _measure_part(
    part: Part, references: Mapping[str, Mapping[float, float]], warm_up_s: float, every_s: float
) -> Row:
    rows = [row for row in part.balance if row["t"] >= warm_up_s]
    swarm = np.array([row["swarm_tps"] for row in rows], dtype=float)
    shares = {
        f"swarm_tps_over_{name}_mean": _mean(_shares(rows, known)) for name, known in references.items()
    }
    moves = [row for row in part.reloads if row["old_start"] is not None]
    capacity = every_s * sum(row.get("capacity_block_tps") or 0.0 for row in part.balance)
    lost = sum(row["lost_block_s"] * row["throughput_tps"] for row in moves)
    return {
        "swarm_tps_mean": float(swarm.mean()) if rows else None,
        **shares,
        "zero_throughput_share": float((swarm <= 0).mean()) if rows else None,
        "moves": len(moves),
        "noop_reloads": sum(bool(row["no_op"]) for row in moves),
        "redundant_loads": sum(row["redundant"] for row in moves),
        "blocks_loaded": sum(row["loaded"] for row in moves),
        "oscillations": oscillations(moves),
        "out_of_service_s": float(sum(row["out_of_service_s"] for row in moves)),
        "lost_block_seconds": float(sum(row["lost_block_s"] for row in moves)),
        "capacity_lost_share": lost / capacity if capacity else None,
    }


def _shares(rows: Iterable[Row], limit: Mapping[float, float]) -> list[float]:
    return [row["swarm_tps"] / limit[row["t"]] for row in rows if limit.get(row["t"], 0) > 0]


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def oscillations(moves: Iterable[Row]) -> int:
    """How often a server came back, within an hour, to the span it had left."""
    left: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    count = 0
    for row in moves:
        old, new, spans = (
            (row["old_start"], row["old_end"]),
            (row["new_start"], row["new_end"]),
            left[row["server"]],
        )
        if new == old:
            continue
        count += new in spans and row["t"] - spans[new] <= RETURN_S
        spans[old] = row["t"]
    return count


def _over_repeats(rows: list[Row]) -> Row:
    merged: Row = {"repeats": len(rows)}
    for name in set(rows[0]) - {"repeat"}:
        known = [row[name] for row in rows if row[name] is not None]
        merged[name] = float(np.mean(known)) if len(known) == len(rows) else None
    shares = [row["swarm_tps_over_optimal_mean"] for row in rows]
    merged["swarm_tps_over_optimal_min"] = None if None in shares else min(shares)
    merged |= beside("swarm_tps_over_optimal", estimate(shares, "mean"))
    return dict(sorted(merged.items()))


def _compared(rows: list[Row], arms: Mapping[str, list[Row]]) -> Row:
    # This arm's mean throughput over the oracle's, and ours over this arm's, population by population.
    def tps(of: list[Row]) -> dict[int, float | None]:
        return {row["repeat"]: row["swarm_tps_mean"] for row in of}

    mine, oracle, ours = tps(rows), tps(arms.get(ORACLE, [])), tps(arms.get(OURS, []))
    found: Row = {}
    for name, ratio in (
        ("swarm_tps_over_oracle", paired_ratio(mine, oracle)),
        ("swarmlab_tps_over_this", paired_ratio(ours, mine)),
    ):
        found |= {name: None if ratio is None else ratio.value, **beside(name, ratio)}
    return found
