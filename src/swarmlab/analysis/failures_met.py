"""Which of the faults of a record its client met, and how long each kept it from its next right token. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.analysis import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarmlab.analysis.metrics import Row, Tokens

BRINGS_BACK = frozenset({"restart", "cont", "move"})
TAKES_AWAY = metrics.FAILURES - BRINGS_BACK  # of those it is gone after


@dataclass(frozen=True)
class FailureMet:
    """One failure for the client: all faults between two of its right tokens.

    Servers of several spans that die at the same moment are one failure, and so are a server and the spare that would
    have replaced it: there is one next right token for all of them, and the clock starts at the first.

    :param first: its first fault, as ``metrics.confirmed_failures`` gives it
    :param to_correct_s: from before that was ordered to the next right token; None if there was none
    """

    first: Row
    to_correct_s: float | None


def failures_met(faults: Sequence[Row], steps: Sequence[Row], reference: Tokens) -> list[FailureMet]:
    """What the client met, in order. A failure counts if one of its faults took a server that the client used; a spare
    that dies while nobody misses it does not count by itself.

    :param faults: of one session, in all their stages
    :param reference: the right tokens
    """
    groups: list[tuple[list[Row], float | None]] = []  # faults, and seconds to the right token after them
    ended_t: float | None = float("-inf")
    over_t = _over_t(steps, reference)
    for row in metrics.confirmed_failures(faults):
        if row["began_t"] >= over_t:
            continue  # the client has had its last token: a fault in its own time that came too late for it
        if ended_t is None or row["t"] < ended_t:
            groups[-1][0].append(row)
            continue
        seconds = metrics.seconds_to_correct(steps, row, reference)
        groups.append(([row], seconds))
        ended_t = None if seconds is None else row["began_t"] + seconds
    return [
        FailureMet(group[0], seconds)
        for group, seconds in groups
        if any(_was_used(row, faults, steps) for row in group)
    ]


def _over_t(steps: Sequence[Row], reference: Tokens) -> float:
    """When the client had all its tokens; never, if it did not get that far."""
    last = max(steps, key=lambda row: row["token"], default=None)
    return last["t"] if last is not None and last["token"] == len(reference) - 1 else float("inf")


def _was_used(fault: Row, faults: Sequence[Row], steps: Sequence[Row]) -> bool:
    """Whether the client lost a server by this fault. Rows say so (``in_chain``) since December 2026; of an older one
    what can be known is whether the server was there, and whether the client had asked anybody yet."""
    if fault.get("in_chain") is False or _was_away(fault, faults):
        return False
    began = [row["t"] - row["seconds"] for row in steps if row["token"] == 0 and row["seconds"] is not None]
    return fault.get("in_chain") is True or not (fault["at_token"] == 0 and began and fault["t"] < began[0])


def _was_away(fault: Row, faults: Sequence[Row]) -> bool:
    """Whether an earlier fault had taken the same server away, and nothing had brought it back."""
    away = False
    for row in sorted(faults, key=lambda row: row["t"]):
        if row["t"] >= fault["began_t"] or row["target"] != fault["target"] or row["ok"] is not True:
            continue
        if row["stage"] == "confirm" and row["fault"] in TAKES_AWAY:
            away = True
        elif row["stage"] == "heal" or (row["stage"] == "confirm" and row["fault"] in BRINGS_BACK):
            away = False
    return away
