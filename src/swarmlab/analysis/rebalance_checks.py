"""Whether a run of +exp=rebalance can be believed: everything happened, was confirmed, and two witnesses agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swarmlab.analysis.checks import Finding, assume
from swarmlab.analysis.rebalance import Part, shown_moves

LEAST_SAMPLES = 0.5  # of those that the interval would give: looks wait for a busy machine
LAST_S = 3.0  # a decision so shortly before the end may not be in the server's log any more
SEEN_S = 8.0  # a reload so shortly before the end may not have been seen in the DHT any more
# What must have been confirmed in each scenario.
EVENTS = {"records_lost": 1, "gap": 2, "wide_joins": 1, "slow_disk": 1}
SLOW_ARMS = ("petals", "swarmlab")

Parts = Mapping[tuple[str, str], Part]


def check_run(
    found: Parts, info: Mapping[str, Any], scenarios: Sequence[str], sample_every_s: float
) -> Iterator[Finding]:
    """The run is complete, and each arm met all that was planned."""
    status, world = info.get("status"), info.get("world")
    yield assume("run / status", status == "complete", f"the run is {status}")
    yield assume("run / world", world == "real", f"the world is {world}")
    for scenario in scenarios:
        for arm in info["arms"]:
            if scenario != "slow_disk" or arm in SLOW_ARMS:
                yield from _check_part(
                    f"{scenario} / {arm}", found.get((scenario, arm)), scenario, sample_every_s
                )


def _check_part(name: str, part: Part | None, scenario: str, every_s: float) -> Iterator[Finding]:
    if part is None or part.span_s is None:
        yield assume(f"{name} / phases", False, "it did not come to its end")
        return
    planned = (part.span_s[1] - part.span_s[0]) / every_s
    enough = len(part.samples) >= LEAST_SAMPLES * planned
    yield assume(f"{name} / samples", enough, f"{len(part.samples)} of about {planned:.0f} samples")
    yield from check_events(name, part, scenario)
    yield from check_witnesses(name, part)


def check_events(name: str, part: Part, scenario: str) -> Iterator[Finding]:
    """Whatever was done to the swarm was seen to happen."""
    faults = part.rows["faults"]
    failed = [row for row in faults if row["ok"] is not True]
    shown = "; ".join(
        f"{row['fault']} of {row['target']} at {row['stage']}: {row['detail']}" for row in failed
    )
    yield assume(f"{name} / events", not failed, shown or "no step went wrong")
    confirmed = sum(row["stage"] == "confirm" and row["ok"] is True for row in faults)
    words = f"{confirmed} of {EVENTS[scenario]} confirmed"
    yield assume(f"{name} / events", confirmed == EVENTS[scenario], words)


def check_witnesses(name: str, part: Part) -> Iterator[Finding]:
    """What servers told of themselves is in their logs and in the DHT as well."""
    assert part.span_s is not None
    end_s, seen = part.span_s[1], shown_moves(part.rows["servers"])
    unseen = [
        f"{row['server']} at {row['new_start']}:{row['new_end']}"
        for row in part.moves
        if row.get("completed", True) and not row["no_op"] and row["t"] < end_s - SEEN_S
        and (row["server"], row["new_start"], row["new_end"]) not in seen
    ]  # fmt: skip
    yield assume(f"{name} / seen in the DHT", not unseen, ", ".join(unseen) or "every completed move")


def check_decisions(found: Parts, arm: str) -> Finding:
    """As many decisions to move as petals itself wrote into its logs, over all scenarios of the arm.

    Ours writes no such line, and needs none: it writes its own decisions.
    """
    mine = [part for (_, name), part in found.items() if name == arm]
    lines = sum(row.get("about") == "imbalanced" for part in mine for row in part.rows["logs"])
    ends = [part.span_s[1] for part in mine if part.span_s is not None]
    decided = [row for part in mine for row in part.decided]
    late = sum(any(0 <= end_s - row["t"] <= LAST_S for end_s in ends) for row in decided)
    agree = len(decided) - late <= lines <= len(decided)
    return assume(
        f"{arm} / log", agree, f"{len(decided)} decisions to move, {lines} lines of petals' own log"
    )


def check_case(part: Part) -> Finding:
    """The report's case came about: somebody decided while the records were missing."""
    away = {
        row["stage"]: row["t"] for row in part.rows["faults"] if row["fault"] == "records_lost" and row["ok"]
    }
    if not {"inject", "heal"} <= away.keys():
        return assume("records_lost / petals / case", False, "the records were not lost and found again")
    meanwhile = [row for row in part.decided if away["inject"] <= row["t"] <= away["heal"]]
    words = f"{len(meanwhile)} servers decided to move while the records were missing"
    return assume("records_lost / petals / case", bool(meanwhile), words)
