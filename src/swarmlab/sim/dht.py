"""What the DHT of a simulated swarm shows: records, not truth."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.types import ServerState, SwarmView

if TYPE_CHECKING:
    from swarmlab.types import ServerRecord


@dataclass
class Dht:
    """Keeps the last record of each server until it expires.

    Renewals change nothing that anybody can see before the next look, so they are made up for at each look instead
    of one by one: half of all events in a large swarm.

    :param view_age_s: a reader may get a view this old instead of a new one
    :param delay_s: how long after ``store`` or a renewal others see it; whoever calls ``store`` waits that long first
    """

    n_blocks: int
    view_age_s: float = 0.0
    update_period_s: float = 60.0
    expiration_s: float = 120.0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        self._records: dict[str, ServerRecord] = {}
        self._peers: list[str] = []  # in order, as a view has them
        self._hidden_until_s: dict[str, float] = {}
        self._last: dict[str, SwarmView] = {}
        self.n_renewals = 0
        self._due: list[tuple[float, str, int]] = []  # next renewals, a heap
        self._expiries: list[tuple[float, str]] = []  # a heap; an entry may be out of date
        self._visits: dict[str, int] = {}  # the visit whose renewals go on
        self._ended_s: dict[
            tuple[str, int], float
        ] = {}  # visits over, some renewals of which may still be seen

    def store(self, record: ServerRecord) -> None:
        """Take a record in place of the server's last one; of two the one that expires later is the newer."""
        peer = record.peer_id
        known = self._records.get(peer)
        if known is None:
            insort(self._peers, peer)
            heapq.heappush(self._expiries, (record.expires_at_s, peer))
        elif record.expires_at_s < known.expires_at_s:
            return
        self._records[peer] = record

    def begin_renewing(self, peer_id: str, now_s: float) -> None:
        """From now on the server renews its record, unless it says that it is offline, once every period."""
        visit = self._visits[peer_id] = self._visits.get(peer_id, 0) + 1
        heapq.heappush(self._due, (now_s + self.update_period_s, peer_id, visit))

    def end_renewing(self, peer_id: str, now_s: float) -> None:
        """The server is gone: no renewal after this."""
        self._ended_s[peer_id, self._visits[peer_id]] = now_s

    def hide(self, peer_id: str, until_s: float) -> None:
        """A lapse: nobody finds this server's record until then."""
        self._hidden_until_s[peer_id] = until_s

    def view(self, now_s: float, readers: str = "servers") -> SwarmView:
        """What a reader gets, records of servers that are gone but have not expired included.

        :param readers: who may get the view that one of them read before
        """
        last = self._last.get(readers)
        if last is not None and 0 < now_s - last.seen_at_s <= self.view_age_s:
            return last
        self._renew(now_s)
        self._expire(now_s)
        for peer in [peer for peer, until_s in self._hidden_until_s.items() if until_s <= now_s]:
            del self._hidden_until_s[peer]
        records, hidden = self._records, self._hidden_until_s
        peers = [peer for peer in self._peers if peer not in hidden] if hidden else self._peers
        view = SwarmView.in_order(self.n_blocks, tuple([records[peer] for peer in peers]), now_s)
        self._last[readers] = view
        return view

    def _renew(self, now_s: float) -> None:
        due, records = self._due, self._records
        while due and due[0][0] + self.delay_s <= now_s:
            at_s, peer, visit = due[0]
            ended_s = self._ended_s.get((peer, visit)) if self._ended_s else None
            if ended_s is not None and ended_s <= at_s:
                heapq.heappop(due)
                del self._ended_s[peer, visit]
                continue
            self.n_renewals += 1
            heapq.heapreplace(due, (at_s + self.update_period_s, peer, visit))
            record = records.get(peer)
            # what is in the DHT when a renewal arrives is what the server said last before it sent that
            if record is None or record.state is ServerState.OFFLINE:
                continue
            expires_at_s = at_s + self.expiration_s
            if record.expires_at_s < expires_at_s:
                records[peer] = record.renewed(expires_at_s)

    def _expire(self, now_s: float) -> None:
        expiries, records = self._expiries, self._records
        while expiries and expiries[0][0] <= now_s:
            _, peer = expiries[0]
            expires_at_s = records[peer].expires_at_s
            if expires_at_s > now_s:
                heapq.heapreplace(expiries, (expires_at_s, peer))
                continue
            heapq.heappop(expiries)
            del records[peer]
            del self._peers[bisect_left(self._peers, peer)]
