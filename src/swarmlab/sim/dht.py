"""What the DHT of a simulated swarm shows: records, not truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.types import SwarmView

if TYPE_CHECKING:
    from swarmlab.types import ServerRecord


@dataclass
class Dht:
    """Keeps the last record of each server until it expires.

    :param view_age_s: a reader may get a view this old instead of a new one
    """

    n_blocks: int
    view_age_s: float = 0.0

    def __post_init__(self) -> None:
        self._records: dict[str, ServerRecord] = {}
        self._hidden_until_s: dict[str, float] = {}
        self._last: SwarmView | None = None

    def store(self, record: ServerRecord) -> None:
        """Take a record in place of the server's last one; of two the one that expires later is the newer."""
        known = self._records.get(record.peer_id)
        if known is None or record.expires_at_s >= known.expires_at_s:
            self._records[record.peer_id] = record

    def hide(self, peer_id: str, until_s: float) -> None:
        """A lapse: nobody finds this server's record until then."""
        self._hidden_until_s[peer_id] = until_s

    def view(self, now_s: float) -> SwarmView:
        """What a reader gets, records of servers that are gone but have not expired included."""
        if self._last is not None and 0 < now_s - self._last.seen_at_s <= self.view_age_s:
            return self._last
        for peer in [peer for peer, record in self._records.items() if record.expires_at_s <= now_s]:
            del self._records[peer]
        for peer in [peer for peer, until_s in self._hidden_until_s.items() if until_s <= now_s]:
            del self._hidden_until_s[peer]
        shown = tuple(record for peer, record in self._records.items() if peer not in self._hidden_until_s)
        self._last = SwarmView(self.n_blocks, shown, seen_at_s=now_s)
        return self._last
