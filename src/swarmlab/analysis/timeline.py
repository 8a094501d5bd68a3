"""What happened in a run, one line per event: faults, failovers, moves, servers that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
KINDS = ("faults", "failovers", "decisions", "reloads", "servers")


@dataclass(frozen=True)
class Event:
    """:param t: seconds since the run began"""

    t: float
    kind: str
    arm: str
    scenario: str
    words: str


def events_of(kind: str, row: Row) -> list[Event]:
    """What a row of the history tells; nothing for rows that are no news, and for kinds that tell of no event."""
    describe = _WORDS.get(kind)
    words = describe(row) if describe else None
    if not words:
        return []
    return [Event(float(row.get("t") or 0.0), kind, row.get("arm") or "", row.get("scenario") or "", words)]


def timeline(history: Mapping[str, Iterable[Row]]) -> list[Event]:
    """All events in the order of time.

    :param history: rows per kind; other kinds than ``KINDS`` are ignored
    """
    found = [event for kind in KINDS for row in history.get(kind, ()) for event in events_of(kind, row)]
    return sorted(found, key=lambda event: event.t)


def _fault(row: Row) -> str | None:
    if row["stage"] not in ("confirm", "heal") and row["ok"]:
        return None
    what = {"confirm": "happened", "heal": "undone"}.get(row["stage"], f"failed at {row['stage']}")
    if not row["ok"]:
        what = f"NOT confirmed at {row['stage']}"
    where = f" ({row['span_start']}:{row['span_end']})" if row.get("span_start") is not None else ""
    token = f" before token {row['at_token']}" if row.get("at_token") is not None else ""
    return f"{row['fault']} of {row['target']}{where}{token} {what}: {row['detail']}"


def _failover(row: Row) -> str:
    lost = ", ".join(
        f"{one.get('start')}:{one.get('end')} ({one.get('cause')})" for one in row.get("failed") or ()
    )
    taken = ", ".join(f"{one.get('start')}:{one.get('end')}" for one in row.get("spans") or ())
    return (
        f"session {row['session']} lost {lost or row['cause']} at token {row['token']}, went on through {taken or '?'} "
        f"after {_seconds(row['total_s'])} ({row['tokens_replayed']} tokens replayed)"
    )


def _decision(row: Row) -> str | None:
    if not row["moved"]:
        return None
    chosen, old = row.get("chosen") or row.get("target"), row.get("old")
    what = "join at" if old is None else f"move from {_span(old)} to"
    return f"{row['server']} decides to {what} {_span(chosen)}: {row['reason']}"


def _reload(row: Row) -> str:
    old = "joins" if row["old_start"] is None else f"moves from {row['old_start']}:{row['old_end']}"
    no_op = ", for nothing" if row["no_op"] else ""
    return (
        f"{row['server']} {old} to {row['new_start']}:{row['new_end']}{no_op}: {row['loaded']} blocks loaded "
        f"({row['redundant']} of them held already), out of service for {_seconds(row['out_of_service_s'])}"
    )


def _server(row: Row) -> str:
    where = f" {row['start']}:{row['end']}" if row.get("start") is not None else ""
    detail = f" ({row['detail']})" if row.get("detail") else ""
    return f"{row['server']}{where} is {row['state']}{detail}"


_WORDS: dict[str, Callable[[Row], str | None]] = {
    "faults": _fault, "failovers": _failover, "decisions": _decision, "reloads": _reload, "servers": _server,
}  # fmt: skip


def _seconds(value: float | None) -> str:
    return "an unknown time" if value is None else f"{value:.3g} s"


def _span(value: Any) -> str:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return f"{value[0]}:{value[1]}"
    if isinstance(value, Mapping) and "start" in value:
        return f"{value['start']}:{value['end']}"
    return str(value)
