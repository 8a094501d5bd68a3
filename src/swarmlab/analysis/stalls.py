"""Steps of a soak that took long, by what they waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swarmlab.analysis.metrics import Row
from swarmlab.analysis.stats import quantile

SLOW_S = 0.2  # a step that takes so long is a stall, whatever it waited for; a client records all of them
# causes of a server that was lost under a session, unlike one that was found gone when a span was opened
LOST = ("broken", "hung", "stuck")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def waits(steps: Iterable[Row], failovers: Iterable[Row]) -> dict[str, list[float]]:
    """Seconds of the slow steps under which no server was lost, by kind.

    - ``opening``: the first step of a session, or one in which a server was found gone when a span was opened;
    - ``late``: a reply came late, and nobody was given up.

    :param steps: of one arm, at least all slow ones
    :param failovers: of the same arm
    """
    causes: dict[Any, set[str]] = {}
    for row in failovers:
        causes.setdefault(_step(row), set()).add(row["cause"])
    found: dict[str, list[float]] = {"opening": [], "late": []}
    for row in steps:
        met = causes.get(_step(row), set())
        if row["seconds"] >= SLOW_S and not met.intersection(LOST) and not row["retries"]:
            found["opening" if row["token"] == 0 or met else "late"].append(row["seconds"])
    return found


def _step(row: Row) -> tuple[Any, ...]:
    return row.get("client"), row["session"], row["token"]


def measure_stalls(lost: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Number and distribution of each kind, and of all together.

    :param lost: seconds of the steps that lost a server, slow or not
    :param others: as ``waits`` finds them
    """
    together = [*lost, *(seconds for values in others.values() for seconds in values)]
    kinds = {"": lost, **{f"{kind}_": values for kind, values in others.items()}, "all_": together}
    measured: dict[str, Any] = {}
    for prefix, values in kinds.items():
        measured[f"{prefix}stalls"] = len(values)
        measured |= {f"{prefix}stall_s_{name}": quantile(values, share) for name, share in QUANTILES.items()}
    return measured
