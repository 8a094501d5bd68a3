"""What a soak shows: sessions, stalls, false alarms, leaks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from swarmlab.analysis import metrics
from swarmlab.analysis.soak_sessions import is_identical, tokens_wrong
from swarmlab.analysis.stalls import measure_stalls, waits
from swarmlab.analysis.stats import finite, median

TAKEN_AWAY = ("kill", "stop")  # faults after which a client must go elsewhere
ALARMS = ("hung", "stuck")  # causes that only a late reply speaks for
WARM_UP_SHARE = 0.25  # of a client's sessions: memory is still being filled for the first time


@dataclass(frozen=True)
class Evidence:
    """The raw record of a soak: rows per kind."""

    history: Mapping[str, Sequence[metrics.Row]]

    def rows(self, kind: str, arm: str | None = None) -> list[metrics.Row]:
        return [row for row in self.history.get(kind, ()) if arm in {None, row["arm"]}]

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row["arm"] for row in self.rows("sessions")))

    @property
    def confirmed(self) -> list[metrics.Row]:
        """Confirmed faults that took a server away."""
        return metrics.confirmed_failures(self.rows("faults"))


def away(faults: Iterable[metrics.Row]) -> dict[str, list[tuple[float, float]]]:
    """When each peer was killed or stopped, from the order to do so until it served again (infinite: never)."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(faults, key=lambda row: row["t"]):
        if row["fault"] not in TAKEN_AWAY:
            continue
        known = spans.setdefault(row["peer"], [])
        if row["stage"] == "setup":  # its row is written just before the order is given
            known.append((row["t"], float("inf")))
        elif row["stage"] in ("heal", "cleanup") and row["ok"] and known and known[-1][1] == float("inf"):
            known[-1] = (known[-1][0], row["t"])
    return spans


def false_alarms(failovers: Iterable[metrics.Row], faults: Iterable[metrics.Row]) -> list[metrics.Row]:
    """Servers given up for a late reply that were neither killed nor stopped at the time; a row of each."""
    spans = away(faults)
    return [
        {**failed, "t": row["t"], "session": row["session"], "client": row.get("client")}
        for row in failovers
        for failed in row["failed"] or ()
        if failed.get("cause") in ALARMS
        and not any(
            start <= row["t"] and row["t"] - row["total_s"] <= end
            for start, end in spans.get(failed["peer"], ())
        )
    ]


def session_numbers(evidence: Evidence) -> dict[tuple[str, Any], list[int]]:
    """Arm and client to the numbers of its sessions, as recorded."""
    numbers: dict[tuple[str, Any], list[int]] = {}
    for row in evidence.rows("sessions"):
        numbers.setdefault((row["arm"], row["client"]), []).append(row["session"])
    return numbers


def measure(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """Arm to metric to value."""
    shared = {**_nemesis(evidence), **leaked(evidence.rows("leaks"))}
    return {arm: {**_arm(evidence, arm), **shared} for arm in evidence.arms}


def _arm(evidence: Evidence, arm: str) -> dict[str, Any]:
    sessions = evidence.rows("sessions", arm)
    steps = sum(row["steps"] or 0 for row in sessions)
    ended = [row for row in sessions if row["outcome"] in ("identical", "wrong")]
    lost = [seconds for row in sessions for seconds in row["stalls"] or ()]
    others = waits(evidence.rows("steps", arm), evidence.rows("failovers", arm))
    alarms = false_alarms(evidence.rows("failovers", arm), evidence.rows("faults"))
    elapsed_s = sum(row["elapsed_s"] or 0.0 for row in sessions)
    return {
        "sessions": len(sessions),
        "outcomes": dict(Counter(row["outcome"] for row in sessions)),
        "sessions_not_identical": sum(not is_identical(row) for row in sessions),
        "failures_survived": sum(row["recoveries"] or 0 for row in ended),
        "sessions_with_failures": sum(bool(row["recoveries"]) for row in ended),
        "steps": steps,
        "steps_per_s": steps / elapsed_s if elapsed_s else None,
        "tokens": sum(row["tokens"] or 0 for row in sessions),
        "tokens_wrong": sum(tokens_wrong(row) for row in sessions),
        "ties": sum(row.get("ties") or 0 for row in sessions),
        "max_abs_diff": max(finite(row["max_abs_diff"] for row in sessions), default=None),
        "step_s_median": median(row["step_s_median"] for row in sessions),
        **measure_stalls(lost, others),
        "false_alarms": len(alarms),
        "false_alarms_per_1000_steps": 1000 * len(alarms) / steps if steps else None,
        "history_bytes_max": max((row["history_bytes"] or 0 for row in sessions), default=0),
        "client_rss_growth_bytes": growth(sessions, "rss_bytes"),
        "client_fds_growth": growth(sessions, "fds"),
        "client_threads_growth": growth(sessions, "threads"),
    }


def _nemesis(evidence: Evidence) -> dict[str, Any]:
    confirms = [row for row in evidence.rows("faults") if row["stage"] == "confirm" and row["ok"]]
    kinds = Counter(row["fault"] for row in confirms)
    return {
        "failures_injected": len(evidence.confirmed),
        "kills": kinds["kill"],
        "stops": kinds["stop"],
        "slowdowns": kinds["pause"],
    }


def growth(sessions: Sequence[metrics.Row], name: str) -> float | None:
    """How much a number of a client grew after its warm-up: the largest of all clients; None with few sessions.

    Compared are medians over the sessions right after the warm-up and over as many at the end.
    """
    processes: dict[Any, list[float]] = {}
    for row in sorted(sessions, key=lambda row: row["t"]):
        if row.get(name) is not None:
            processes.setdefault((row["client"], row["pid"]), []).append(row[name])
    grown = []
    for values in processes.values():
        share = int(len(values) * WARM_UP_SHARE)
        if share >= 2:
            grown.append(float(np.median(values[-share:]) - np.median(values[share : 2 * share])))
    return max(grown, default=None)


def leaked(rows: Sequence[metrics.Row]) -> dict[str, Any]:
    """What the swarm has more of at the end than at the start, or leaves behind; None if nobody looked."""
    by_moment = {row["moment"]: row for row in rows}
    found: dict[str, Any] = {}
    for name in ("processes", "sockets", "files"):
        during = after = None
        if {"start", "end", "after"} <= set(by_moment):
            during = by_moment["end"][name] - by_moment["start"][name]
            after = by_moment["after"][name]
        found[f"leaked_{name}"] = None if during is None or after is None else max(during, 0) + after
    return found
