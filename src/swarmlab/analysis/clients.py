"""What the clients of a simulated swarm got, arm by arm: tokens, sessions that ended, and how long they stood still."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.balance import OURS
from swarmlab.analysis.stats import beside, estimate, paired_ratio, quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KINDS = ("sessions", "failovers", "openings", "delivered")
FINISHED = "finished"

# Shown with an interval over populations, and in the figure, with the words there.
SHOWN = {
    "delivered_tps": "tokens/s delivered to all clients",
    "sessions_failed_share": "share of sessions that ended with an error",
    "stalls_per_1000_tokens": "stalls per 1,000 tokens",
    "stall_s_p95": "seconds that 95 % of stalls do not pass",
    "stalled_share": "share of the clients' time in stalls",
    "seeking_share": "... in which they knew no server for a block",
}

Row = dict[str, Any]
Part = dict[str, list[Row]]  # kind to rows, of one arm in one scenario with one population
Key = tuple[str, str, int]  # scenario, arm, repeat


def measure_clients(
    history: Mapping[str, Iterable[Row]], *, warm_up_s: float
) -> dict[str, dict[str, list[Row]]]:
    """Scenario to arm to what its clients got in each population, a row with ``repeat`` for each.

    A stall is a time in which a session could not go on: it had lost a server, or a new one did not find or reach its
    servers at once. What ends before the warm-up is over does not count; one that goes on when the simulation ends
    counts as far as it has come (``cut_off``), so it takes at least so long.

    :returns: nothing of scenarios without clients
    """
    measured: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for (scenario, arm, repeat), part in _parts(history, warm_up_s).items():
        measured[scenario][arm].append({"repeat": repeat, **_measure_part(part)})
    return measured


def summed_up_clients(measured: Mapping[str, Mapping[str, list[Row]]]) -> dict[str, dict[str, Row]]:
    """Scenario to arm to metric: of several populations the mean, with 95 % intervals of what is shown.

    :param measured: as :func:`measure_clients` returns it
    """
    return {
        scenario: {arm: _over_repeats(rows) | _compared(rows, arms) for arm, rows in arms.items()}
        for scenario, arms in measured.items()
    }


def _parts(history: Mapping[str, Iterable[Row]], warm_up_s: float) -> dict[Key, Part]:
    found: dict[Key, Part] = defaultdict(lambda: {kind: [] for kind in KINDS})
    for kind in KINDS:
        for row in history.get(kind, ()):
            if row["t"] > warm_up_s:
                found[row["scenario"], row["arm"], row["repeat"]][kind].append(row)
    return dict(found)


def _measure_part(part: Part) -> Row:
    sessions, samples = part["sessions"], part["delivered"]
    tokens, seconds = sum(row["tokens"] for row in samples), sum(row["seconds"] for row in samples)
    stalls = [*part["failovers"], *part["openings"]]
    stall_s = [row["total_s"] for row in stalls]
    client_s = sum(row["clients"] * row["seconds"] for row in samples)
    failed = sum(row["outcome"] != FINISHED for row in sessions)
    return {
        "sessions": len(sessions),
        "sessions_failed": failed,
        "sessions_failed_share": failed / len(sessions) if sessions else None,
        "tokens": tokens,
        "delivered_tps": tokens / seconds if seconds else None,
        "servers_lost": len(part["failovers"]),
        "stalls": len(stalls),
        "stalls_per_1000_tokens": 1000 * len(stalls) / tokens if tokens else None,
        "stall_s_p50": quantile(stall_s, 0.5),
        "stall_s_p95": quantile(stall_s, 0.95),
        "stalled_share": sum(stall_s) / client_s if client_s else None,
        "seeking_share": sum(row["reroute_s"] for row in stalls) / client_s if client_s else None,
    }


def _over_repeats(rows: list[Row]) -> Row:
    merged: Row = {}
    for name in set(rows[0]) - {"repeat"}:
        known = [row[name] for row in rows if row[name] is not None]
        merged[name] = sum(known) / len(known) if known else None
        if name in SHOWN:
            merged |= beside(name, estimate(known, "mean"))
    return dict(sorted(merged.items()))


def _compared(rows: list[Row], arms: Mapping[str, list[Row]]) -> Row:
    # Ours over this arm, population by population.
    def tps(of: list[Row]) -> dict[int, float | None]:
        return {row["repeat"]: row["delivered_tps"] for row in of}

    ratio = paired_ratio(tps(arms.get(OURS, [])), tps(rows))
    name = "swarmlab_delivered_over_this"
    return {name: None if ratio is None else ratio.value, **beside(name, ratio)}
