"""What a run on real servers shows of each placement arm: throughput, what moving cost, what clients felt. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from swarmlab.analysis.soak_sessions import tokens_wrong
from swarmlab.analysis.stats import finite

Row = dict[str, Any]
History = Mapping[str, Sequence[Row]]

# The scenarios that happen to one swarm after the other; what they say together is what an arm says.
TIMELINE = ("records_lost", "gap", "wide_joins")
SLOW_DISK, MOVER = "slow_disk", "mover"
KINDS = ("phases", "balance", "reloads", "decisions", "faults", "sessions", "servers", "logs")
LEAST_OUT_S = 0.1  # for ratios: nothing shorter is told apart from 0
ENDED = ("identical", "wrong")  # sessions that came to their end


@dataclass
class Part:
    """The rows of one arm in one scenario, in the order in which they were written."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    @property
    def span_s(self) -> tuple[float, float] | None:
        """When the scenario began and ended; None if it did not come to its end."""
        moments = {row["moment"]: row["t"] for row in self.rows["phases"]}
        return (moments["begin"], moments["end"]) if {"begin", "end"} <= moments.keys() else None

    @property
    def samples(self) -> list[Row]:
        """Looks at the swarm between the scenario's begin and end."""
        if self.span_s is None:
            return []
        begin_s, end_s = self.span_s
        return [row for row in self.rows["balance"] if begin_s <= row["t"] <= end_s]

    @property
    def moves(self) -> list[Row]:
        """Reloads of servers that held blocks before, completed or not."""
        return [row for row in self.rows["reloads"] if row["old_start"] is not None]

    @property
    def decided(self) -> list[Row]:
        """Decisions to move, without the choice of blocks that follows some of them."""
        rows = self.rows["decisions"]
        return [row for row in rows if row["moved"] and row.get("phase") not in ("join", "choose")]


def parts(history: History) -> dict[tuple[str, str], Part]:
    """Rows by scenario and arm."""
    found: dict[tuple[str, str], Part] = defaultdict(Part)
    for kind in KINDS:
        for row in history.get(kind, ()):
            if row["arm"]:
                found[row["scenario"], row["arm"]].rows[kind].append(row)
    return {key: part for key, part in found.items() if part.rows["phases"]}


def measure(history: History) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """
    :returns: arm to metric over the scenarios of the timeline, and scenario to arm to metric
    """
    found = parts(history)
    scenarios: dict[str, dict[str, Any]] = {}
    for (scenario, arm), part in found.items():
        scenarios.setdefault(scenario, {})[arm] = measure_part([part])
    for arm in (slow := scenarios.get(SLOW_DISK, {})):
        slow[arm]["out_of_service_over_swarmlab"] = _ratio(slow, arm)
    order = list(dict.fromkeys(arm for _, arm in found))
    arms = {
        arm: measure_part([found[scenario, arm] for scenario in TIMELINE if (scenario, arm) in found])
        for arm in order
        if any((scenario, arm) in found for scenario in TIMELINE)
    }
    return arms, scenarios


def measure_part(found: Sequence[Part]) -> Row:
    """The metrics of one arm over one scenario or several."""
    samples = [row for part in found for row in part.samples]
    moves = [row for part in found for row in part.moves]
    swarm = np.array([row["swarm_tps"] for row in samples], dtype=float)
    shares = [row["swarm_tps"] / row["optimal_tps"] for row in samples if (row["optimal_tps"] or 0) > 0]
    delivered = finite(row.get("delivered_tps") for row in samples)
    return {
        "swarm_tps_mean": _mean(swarm),
        "swarm_tps_over_optimal_mean": _mean(shares),
        "zero_throughput_share": _mean(swarm <= 0),
        "delivered_tps_mean": _mean(delivered),
        "decisions_to_move": sum(len(part.decided) for part in found),
        **measure_moves(moves),
        **_clients([row for part in found for row in part.rows["sessions"]], len(moves)),
    }


def measure_moves(moves: Sequence[Row]) -> Row:
    """What moving cost, also what was loaded for moves that were then not made; servers that join are left out."""
    done = [row for row in moves if row.get("completed", True)]
    keeping = [row for row in done if overlap(row)]
    capacity = [lost_block_s(row) * (row.get("throughput_tps") or 0.0) for row in done]
    return {
        "moves": len(done),
        "moves_failed": len(moves) - len(done),
        "noop_reloads": sum(bool(row["no_op"]) for row in done),
        "redundant_loads": sum(row["redundant"] or 0 for row in moves),
        "blocks_loaded": sum(row["loaded"] or 0 for row in moves),
        "bytes_read": sum(row["bytes_read"] or 0 for row in moves),
        "out_of_service_s": float(sum(row["out_of_service_s"] or 0.0 for row in done)),
        # blocks in both spans: petals takes them out of service for the whole reload, ours for the swap
        "kept_out_of_service_s_max": max((row["out_of_service_s"] or 0.0 for row in keeping), default=0.0),
        "lost_block_seconds": float(sum(lost_block_s(row) for row in done)),
        "capacity_lost_per_move": _mean(capacity),
    }


def overlap(row: Row) -> int:
    """Blocks in the old and in the new span of a reload."""
    return max(0, min(row["old_end"], row["new_end"]) - max(row["old_start"], row["new_start"]))


def lost_block_s(row: Row) -> float:
    """Blocks times seconds out of service; where the server did not count them itself, all of its blocks."""
    told = row.get("lost_block_s")
    if told is not None:
        return float(told)
    return float((row["new_end"] - row["new_start"]) * (row["out_of_service_s"] or 0.0))


def _clients(sessions: Sequence[Row], n_moves: int) -> Row:
    stalls = [seconds for row in sessions for seconds in row["stalls"] or ()]
    broken = [row for row in sessions if row["outcome"] not in ENDED]
    return {
        "sessions": len(sessions),
        "sessions_broken": len(broken),
        "sessions_broken_per_move": len(broken) / n_moves if n_moves else None,
        "tokens": sum(row["tokens"] or 0 for row in sessions),
        "tokens_wrong": sum(tokens_wrong(row) for row in sessions),
        "recoveries": sum(row["recoveries"] or 0 for row in sessions),
        "stalls": len(stalls),
        "stall_s_total": float(sum(stalls)),
        "stall_s_max": max(stalls, default=None),
    }


def _ratio(arms: Mapping[str, Row], arm: str) -> float | None:
    # a server that never stops serving is not infinitely better than another: what counts is a lower bound
    ours = arms.get("swarmlab", {})
    if not ours.get("moves") or not arms[arm]["moves"]:
        return None
    return arms[arm]["out_of_service_s"] / max(ours["out_of_service_s"], LEAST_OUT_S)


def _mean(values: Any) -> float | None:
    known = np.asarray(values, dtype=float)
    return float(known.mean()) if known.size else None


def shown_moves(servers: Iterable[Row]) -> set[tuple[str, int, int]]:
    """Server and span of every ONLINE record that the DHT showed."""
    return {
        (row["server"], row["start"], row["end"])
        for row in servers
        if row.get("source") == "dht" and row["state"] == "online" and row["start"] is not None
    }
