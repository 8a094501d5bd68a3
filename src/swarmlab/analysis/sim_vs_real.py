"""A real run of +exp=rebalance as a script for the simulator, and how far the two then agree. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from swarmlab.analysis.checks import Finding, Verdict, assume
from swarmlab.analysis.rebalance import TIMELINE, History, Part, Row, lost_block_s, parts

REAL, SIMULATED = "real", "simulated"
METRICS = ("moves", "noop_reloads", "blocks_loaded", "out_of_service_s", "swarm_tps_mean")
FULL_RELOAD_ARMS = ("petals", "recheck", "appendix_d")
LOOK_S = 1.0  # between two looks at the swarm
OWN_CHOICE_ARMS = ("petals", "recheck")  # that wait and choose again before they load


@dataclass(frozen=True)
class Timeline:
    """What happened to one arm's real swarm, in seconds since its first scenario began.

    :param end_s: of the last scenario
    :param lost: server whose records were lost, and since when nobody saw them
    :param killed: server to the time of its death
    :param joined: server to the time at which it was announced
    """

    end_s: float
    lost: tuple[str, float] | None
    killed: Mapping[str, float]
    joined: Mapping[str, float]


@dataclass(frozen=True)
class LoadSeconds:
    """What loading took on the real swarm.

    :param s_per_block: median over all blocks that were loaded after the start
    :param s_per_full_move: what a reload of petals takes beside its blocks and its own waits
    :param s_per_kept_move: what a move of ours takes beside its blocks
    :param announce_s: until a record is seen by others, from the choice of blocks on
    :param back_s: from a decision to move until lost records are back
    """

    s_per_block: float
    s_per_full_move: float
    s_per_kept_move: float
    announce_s: float
    back_s: float


def timeline(history: History, arm: str) -> tuple[Timeline, float]:
    """The arm's timeline, and when it began on the clock of the run.

    :raises ValueError: if the run has no whole timeline of the arm
    """
    found = parts(history)
    mine = [found[name, arm] for name in TIMELINE if (name, arm) in found]
    spans = [part.span_s for part in mine if part.span_s is not None]
    if not spans or len(spans) < len(mine):
        raise ValueError(f"no whole timeline of {arm}")
    zero_s = spans[0][0]
    faults = [row for part in mine for row in part.rows["faults"] if row["ok"] is True]
    at = {(row["fault"], row["target"], row["stage"]): row["t"] - zero_s for row in faults}
    lost = next(
        (
            (target, since_s)
            for (fault, target, stage), since_s in at.items()
            if fault == "records_lost" and stage == "confirm"
        ),
        None,
    )
    return (
        Timeline(
            end_s=spans[-1][1] - zero_s,
            lost=lost,
            killed={
                target: t for (fault, target, stage), t in at.items() if (fault, stage) == ("kill", "inject")
            },
            joined={
                target: t for (fault, target, stage), t in at.items() if (fault, stage) == ("join", "confirm")
            },
        ),
        zero_s,
    )


def load_seconds(history: History, choice_delay_s: float) -> LoadSeconds:
    """
    :param choice_delay_s: mean wait of petals before it chooses blocks
    """
    moves = [
        row
        for row in history["reloads"]
        if row["scenario"] in TIMELINE
        and row["old_start"] is not None
        and row["loaded"]
        and row.get("completed", True)
    ]
    blocks = [_load_s(row) / row["loaded"] for row in moves]
    full = [
        (row["out_of_service_s"] or 0.0) - _load_s(row) - choice_delay_s * (row["arm"] in OWN_CHOICE_ARMS)
        for row in moves
        if row["arm"] in FULL_RELOAD_ARMS
    ]
    kept = [row["total_s"] - _load_s(row) for row in moves if row.get("total_s") is not None]
    return LoadSeconds(
        s_per_block=_median(blocks),
        s_per_full_move=max(0.0, _median(full)),
        s_per_kept_move=max(0.0, _median(kept)),
        announce_s=max(0.0, _median(_announced_after_s(history))),
        back_s=_median(_back_after_s(history)),
    )


def _announced_after_s(history: History) -> list[float]:
    """From each choice of blocks until the DHT was seen to show it, less half an interval between two looks."""
    seen = [row for row in history["servers"] if row.get("source") == "dht" and row["start"] is not None]
    chosen = [
        row for row in history["decisions"] if row["scenario"] in TIMELINE and row.get("phase") == "choose"
    ]
    waits = []
    for row in chosen:
        after = [
            one["t"] - row["t"]
            for one in seen
            if (one["arm"], one["server"]) == (row["arm"], row["server"])
            and f"{one['start']}:{one['end']}" == row["chosen"]
            and one["t"] >= row["t"]
        ]
        waits += [min(after) - LOOK_S / 2] if after else []
    return waits


def _back_after_s(history: History) -> list[float]:
    """From the first decision to move while records were lost until they were back, of each arm."""
    waits = []
    for (scenario, _), part in parts(history).items():
        if scenario != TIMELINE[0]:
            continue
        away = {row["stage"]: row["t"] for row in part.rows["faults"] if row["ok"] is True}
        first = min(
            (row["t"] for row in part.decided if row["t"] >= away.get("inject", np.inf)), default=None
        )
        if first is not None and first <= away.get("heal", -np.inf):
            waits.append(away["heal"] - max(first, away["confirm"]))
    return waits


def real_rows(part: Part) -> tuple[list[Row], list[Row]]:
    """Samples and moves of one scenario."""
    return part.samples, part.moves


def measure(samples: Sequence[Row], moves: Sequence[Row]) -> Row:
    """What both worlds can be asked, of one swarm.

    Seconds out of service: a server that serves a part of its blocks meanwhile is out with the rest of them.
    """
    done = [row for row in moves if row["old_start"] is not None and row.get("completed", True)]
    return {
        "moves": len(done),
        "noop_reloads": sum(bool(row["no_op"]) for row in done),
        "blocks_loaded": sum(row["loaded"] for row in done),
        "out_of_service_s": float(
            sum(lost_block_s(row) / (row["new_end"] - row["new_start"]) for row in done)
        ),
        "swarm_tps_mean": float(np.mean([row["swarm_tps"] for row in samples])) if samples else None,
    }


def by_arm(history: History) -> dict[str, dict[str, Any]]:
    """Arm to metric: ``<metric>_real``, and ``_simulated`` (the mean), ``_low``, ``_high`` and ``_error``."""
    worlds: dict[tuple[str, str, int], tuple[list[Row], list[Row]]] = {}
    for index, kind in enumerate(("balance", "reloads")):
        for row in history[kind]:
            if row["scenario"] in (REAL, SIMULATED):
                key = (row["arm"], row["scenario"], row.get("repeat") or 0)
                worlds.setdefault(key, ([], []))[index].append(row)
    found: dict[str, dict[str, Any]] = {}
    for arm in dict.fromkeys(arm for arm, _, _ in worlds):
        real = measure(*worlds.get((arm, REAL, 0), ([], [])))
        simulated = [
            measure(*rows) for (name, world, _), rows in worlds.items() if (name, world) == (arm, SIMULATED)
        ]
        found[arm] = {"simulations": len(simulated)}
        for metric in METRICS:
            found[arm] |= _compared(metric, real[metric], [one[metric] for one in simulated])
    return found


def check(
    arms: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Any], info: Mapping[str, Any]
) -> Iterator[Finding]:
    """The real value lies within what the simulations give, widened by a tolerance; and their mean is near it.

    :param wanted: metric to ``absolute`` and ``relative`` (to the mean of the simulations), whichever is more; below
        ``mean`` the same two of how far that mean may be from the real value (``relative`` to that)
    :raises ValueError: if a tolerance is below 0
    """
    for arm in info["arms"]:
        measured = arms.get(arm)
        yield assume(f"{arm} / both worlds", bool(measured and measured["simulations"]), "both were recorded")
        for metric, slack in wanted.items():
            if measured:
                yield _agree(f"{arm} / {metric}", metric, measured, slack)
                if "mean" in slack:
                    yield _mean_is_near(f"{arm} / {metric} / mean", metric, measured, slack["mean"])


def _agree(name: str, metric: str, measured: Mapping[str, Any], slack: Mapping[str, Any]) -> Finding:
    real, mean = measured[f"{metric}_real"], measured[f"{metric}_simulated"]
    low, high = measured[f"{metric}_low"], measured[f"{metric}_high"]
    if None in (real, mean, low, high):
        return Finding(name, Verdict.UNKNOWN, "not available")
    allowed = _allowed(name, slack, mean)
    agrees = low - allowed <= real <= high + allowed
    words = f"real {real:.4g}, simulated {mean:.4g} ({low:.4g} to {high:.4g}), tolerance {allowed:.3g}"
    return Finding(name, Verdict.HOLDS if agrees else Verdict.FAILS, words)


def _mean_is_near(name: str, metric: str, measured: Mapping[str, Any], slack: Mapping[str, float]) -> Finding:
    real, mean = measured[f"{metric}_real"], measured[f"{metric}_simulated"]
    if None in (real, mean):
        return Finding(name, Verdict.UNKNOWN, "not available")
    allowed = _allowed(name, slack, real)
    words = f"real {real:.4g}, simulated {mean - real:+.3g}, at most {allowed:.3g} allowed"
    return Finding(name, Verdict.HOLDS if abs(mean - real) <= allowed else Verdict.FAILS, words)


def _allowed(name: str, slack: Mapping[str, Any], of: float) -> float:
    absolute, relative = (slack.get(kind, 0.0) for kind in ("absolute", "relative"))
    if min(absolute, relative) < 0:
        raise ValueError(f"{name}: tolerances are at least 0, got {dict(slack)}")
    return max(absolute, relative * abs(of))


def _compared(metric: str, real: float | None, simulated: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in simulated if value is not None]
    mean = float(np.mean(known)) if known else None
    return {
        f"{metric}_real": real,
        f"{metric}_simulated": mean,
        f"{metric}_low": float(min(known)) if known else None,
        f"{metric}_high": float(max(known)) if known else None,
        f"{metric}_error": None if mean is None or real is None else mean - real,
    }


def _load_s(row: Row) -> float:
    return sum(row[name] or 0.0 for name in ("read_s", "quantize_s", "adapter_s", "to_device_s"))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0
