"""Numbers from the raw rows and arrays of one session. Pure; what is not available is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from swarmlab.analysis.stats import finite

Row = Mapping[str, Any]
Array = np.ndarray
Arrays = Mapping[str, Array]
Tokens = list[tuple[int, ...]]  # one entry per token index, in it one id per row of the batch

FAILURES = frozenset({"kill", "stop", "cut", "leave", "move"})
PLANNED = frozenset({"renewed"})  # causes for which a session changes servers although nobody failed


def tokens_of(steps: Sequence[Row]) -> Tokens:
    """What a session produced, up to the first missing token; of a repeated step the last one counts."""
    by_index = {
        int(row["token"]): tuple(row["token_ids"] or ()) for row in steps if row.get("token") is not None
    }
    tokens: Tokens = []
    while len(tokens) in by_index:
        tokens.append(by_index[len(tokens)])
    return tokens


def identical_tokens(tokens: Tokens, reference: Tokens) -> int:
    """How many ids equal the reference's, over all rows of the batch."""
    return sum(
        int(mine == right)
        for got, wanted in zip(tokens, reference, strict=False)
        for mine, right in zip(got, wanted, strict=False)
    )


def distinct_tokens(tokens: Tokens) -> int:
    """Distinct ids in the dullest row of the batch."""
    return min((len(set(row)) for row in zip(*tokens, strict=True)), default=0)


def root_mean_square(values: Array) -> float:
    """Size of an array's numbers; 0 for an empty one, and for one with a number that is not finite."""
    if not values.size:
        return 0.0
    size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    return size if np.isfinite(size) else 0.0


def max_abs_diff(hidden: Array, reference: Array, *, prefix: bool = False) -> float | None:
    """Largest difference between two arrays ``[batch, tokens, hidden]``; infinite if either holds a NaN.

    :param prefix: compare the positions that both have (a session that ended early); otherwise shapes must agree
    :return: None if the arrays cannot be laid over each other
    """
    if hidden.ndim != 3 or reference.ndim != 3:
        return None
    if prefix:
        length = min(hidden.shape[1], reference.shape[1])
        hidden, reference = hidden[:, :length], reference[:, :length]
    if hidden.shape != reference.shape or hidden.size == 0:
        return None
    largest = float(np.max(np.abs(hidden.astype(np.float64) - reference.astype(np.float64))))
    return largest if np.isfinite(largest) else float("inf")


def confirmed_failures(faults: Sequence[Row]) -> list[Row]:
    """The confirmations of faults that took a server away, each with ``began_t``: the moment before it was ordered.

    A client may notice a fault, and repair what it broke, before the orchestrator has confirmed it.
    """
    ready: dict[tuple[str, str | None], float] = {}
    failures = []
    for row in sorted(faults, key=lambda row: row["t"]):
        which = (row["fault"], row.get("target"))
        if row["stage"] == "setup":
            ready[which] = row["t"]
        elif row["stage"] == "confirm" and row["ok"] is True and row["fault"] in FAILURES:
            failures.append({**row, "began_t": ready.get(which, row["t"])})
    return failures


def recoveries(failovers: Sequence[Row]) -> list[Row]:
    """The rows that tell of a failure; a stream renewed before its server's time limits is none."""
    return [row for row in failovers if row["cause"] not in PLANNED]


def seconds_to_correct(steps: Sequence[Row], confirmed: Row, reference: Tokens) -> float | None:
    """From a fault to the end of the first step after it with the right tokens; None if none has.

    :param confirmed: as ``confirmed_failures`` gives it; several failures at once: the first
    """
    first = confirmed.get("at_token") or 0
    for row in sorted(steps, key=lambda row: row["t"]):
        token = row["token"]
        if row["t"] <= confirmed["t"] or token < first or token >= len(reference):
            continue
        if tuple(row["token_ids"] or ()) == reference[token]:
            return float(row["t"] - confirmed.get("began_t", confirmed["t"]))
    return None


def floor_seconds(floors: Sequence[Row]) -> float | None:
    """What no replay could beat: one connection and one prefill of the same history, the fastest of the repeats.

    The fastest, because whatever slowed the others down was not part of the work.
    """
    return min(
        finite(
            row["connect_s"] + row["prefill_s"]
            for row in floors
            if row["connect_s"] is not None and row["prefill_s"] is not None
        ),
        default=None,
    )


def stall_seconds(steps: Sequence[Row], confirmed: Sequence[Row]) -> float | None:
    """The longest step that ended after the first confirmed fault."""
    if not confirmed:
        return None
    first = min(row["t"] for row in confirmed)
    return max(finite(row["seconds"] for row in steps if row["t"] > first), default=None)
