"""Waiting by predicates with deadlines, and the predicates."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from swarmlab.types import ServerState, Span, SwarmView

Found = TypeVar("Found")

POLL_S = 0.2


def wait_for(
    predicate: Callable[[], Found | None], deadline_s: float, what: str, wake: threading.Event | None = None
) -> Found:
    """Ask again and again until the predicate gives something true.

    :param deadline_s: seconds from now
    :param what: what is waited for, for the error
    :param wake: set by whoever knows of a change, so that the predicate is asked at once
    :raises TimeoutError: at the deadline
    """
    wake = wake or threading.Event()
    until = time.monotonic() + deadline_s
    while True:
        wake.clear()
        if found := predicate():
            return found
        if time.monotonic() >= until:
            raise TimeoutError(f"not within {deadline_s:.1f} s: {what}")
        wake.wait(POLL_S)


def state_of(view: SwarmView, peer_id: str, span: Span | None) -> ServerState | None:
    """What the DHT says of a server; None if nothing, or if it announces other blocks than it should hold.

    :param span: the blocks it should hold; None if any will do
    """
    record = view.get(peer_id)
    if record is None or (span is not None and record.span != span):
        return None
    return record.state


def log_tail(path: Path, n_lines: int = 15) -> str:
    """The last lines of a log, indented for an error message."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "    (no log)"
    return "\n".join(f"    {line}" for line in lines[-n_lines:]) or "    (empty log)"
