"""Faults on what the DHT shows: records that are lost while their server serves on, and servers that join."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from swarmlab.faults.lifecycle import FaultFailed
from swarmlab.types import ServerRecord

POLL_S = 0.1
ANSWER_S = 2.0

Seen = Callable[[], "ServerRecord | None"]


class Answers(Protocol):
    """What a swarm tells of a server (``swarmlab.swarm.deploy.Swarm``)."""

    def answers(self, name: str, timeout_s: float) -> bool: ...


class RecordsLost:
    """A server's announcements are held back until its records have lapsed; it serves on all the while.

    :param hold: the closed gate: a file that its process looks for before it announces itself
    :param seen: what the DHT shows of the server
    :param deadline_s: for its records to lapse, and to come back
    """

    def __init__(self, name: str, hold: Path, swarm: Answers, seen: Seen, deadline_s: float) -> None:
        self._name, self._hold, self._swarm, self._seen = name, hold, swarm, seen
        self._deadline_s = deadline_s

    def setup(self) -> str:
        _require(self._seen() is not None, f"the DHT shows nothing of {self._name}")
        return "announced"

    def inject(self) -> str:
        self._hold.touch()
        return "announcements held back"

    def confirm(self) -> str:
        waited_s = _until(
            lambda: self._seen() is None, self._deadline_s, f"the records of {self._name} lapse"
        )
        _require(self._swarm.answers(self._name, ANSWER_S), f"{self._name} itself does not answer")
        return f"records gone after {waited_s:.1f} s; the server itself answers"

    def heal(self) -> str:
        self._hold.unlink(missing_ok=True)
        waited_s = _until(
            lambda: self._seen() is not None, self._deadline_s, f"{self._name} is announced again"
        )
        return f"announced again after {waited_s:.1f} s"

    def cleanup(self) -> str:
        self._hold.unlink(missing_ok=True)
        return "nothing held back"


class Join:
    """A server that comes to a running swarm: no fault, but an event that must be confirmed as well.

    :param start: begins to start it
    """

    def __init__(self, name: str, start: Callable[[], None], seen: Seen, deadline_s: float) -> None:
        self._name, self._start, self._seen, self._deadline_s = name, start, seen, deadline_s

    def setup(self) -> str:
        return "not there yet"

    def inject(self) -> str:
        self._start()
        return "started"

    def confirm(self) -> str:
        waited_s = _until(lambda: self._seen() is not None, self._deadline_s, f"{self._name} is announced")
        record = self._seen()
        return f"announced with blocks {record.span if record else '?'} after {waited_s:.1f} s"

    def heal(self) -> str:
        return "it stays"

    def cleanup(self) -> str:
        return "it stays"


def _require(condition: bool, failure: str) -> None:
    if not condition:
        raise FaultFailed(failure)


def _until(predicate: Callable[[], bool], deadline_s: float, what: str) -> float:
    started = time.monotonic()
    while not predicate():
        if time.monotonic() - started > deadline_s:
            raise FaultFailed(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - started
