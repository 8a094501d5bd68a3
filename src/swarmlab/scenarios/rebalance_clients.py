"""Clients that generate while a swarm rebalances, and how many tokens have passed the swarm."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from swarmlab.scenarios.soak_client import SoakClient


class Delivered:
    """Counts tokens that clients got, for tokens/s between two looks; safe from any thread.

    Each token passes every block, so the number is the same for all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = 0
        self._last: tuple[float, int] | None = None

    def add(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens

    def rate_tps(self) -> float | None:
        """Tokens/s since the last call; None at the first."""
        now_s = time.monotonic()
        with self._lock:
            tokens, last, self._last = self._tokens, self._last, (now_s, self._tokens)
        return None if last is None or now_s <= last[0] else (tokens - last[1]) / (now_s - last[0])


@dataclass
class LoadClient(SoakClient):
    """A soak's client in another experiment: its rows carry the scenario that is under way.

    :param where: gives the scenario
    """

    where: Any = None
    delivered: Delivered = field(default_factory=Delivered)
    _counted: tuple[int, int] = field(default=(-1, 0), init=False)  # session, tokens of it that were counted

    def _write(self, kind: str, at_s: float, row: dict[str, Any]) -> None:
        if kind == "steps":
            self._count(row["session"], row["token"], len(row["token_ids"]))
        if not self._over.is_set():
            self.history.write(kind, self.arm, at_s=at_s, scenario=self.where(), client=self.number, **row)

    def _count(self, session: int, token: int, rows: int) -> None:
        # not every step is reported: those in between have passed as well
        known_session, known = self._counted
        since = known if session == known_session else 0
        self.delivered.add(max(0, token + 1 - since) * rows)
        self._counted = (session, token + 1)
