"""What follows from a failure: whom one session avoids, and what it lets the other sessions of its client know.

A session that was turned down, for its size or by an error of the request, has learnt something about itself; one
whose server died has learnt something that every session should know. A session keeps to what it has learnt itself
until the server serves *it* again; what others told it is over as soon as the server has served anybody since.
"""

from __future__ import annotations

from collections.abc import Collection

from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.failure import OF_THE_SERVER, PASSING, Attempt, Cause
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import SwarmView


class Blame:
    """The bans of one session.

    :param shared: those that all sessions of the client know of
    """

    def __init__(self, settings: RecoverySettings, shared: BanTable) -> None:
        self._settings, self._own, self._shared = settings, BanTable(settings), shared
        self._blamed: dict[str, Attempt] = {}

    def failed(self, attempt: Attempt, now_s: float, view: SwarmView | None) -> None:
        """Draw the consequence of a failure for later choices; once, however often it is told."""
        if self._blamed.get(attempt.peer_id) is attempt:
            return
        self._blamed[attempt.peer_id] = attempt
        self._note(self._own, attempt, now_s, view)
        if attempt.cause in OF_THE_SERVER:
            self._note(self._shared, attempt, now_s, view)

    def praise(self, peer_id: str, asked_at_s: float) -> None:
        """``peer_id`` has done what it was asked for then: an end to its series of failures."""
        for bans in (self._own, self._shared):
            bans.succeeded(peer_id, asked_at_s=asked_at_s)

    def pardon(self, peer_ids: Collection[str]) -> None:
        """The request was at fault, not these peers."""
        for peer_id in peer_ids:
            self._own.succeeded(peer_id)

    def excluded(self, now_s: float, view: SwarmView, *, last_resort: bool = False) -> frozenset[str]:
        """As BanTable.excluded. What others told is a reason to go to somebody else, but none to wait."""
        own = self._own.excluded(now_s, view, last_resort=last_resort)
        return own if last_resort else own | self._shared.excluded(now_s, view)

    def next_chance_s(self, peer_ids: Collection[str], now_s: float) -> float:
        """As BanTable.next_chance_s."""
        return self._own.next_chance_s(peer_ids, now_s)

    def suspects(self) -> frozenset[str]:
        """As BanTable.suspects."""
        return self._own.suspects() | self._shared.suspects()

    def failures_in_a_row(self, peer_id: str) -> int:
        """As BanTable.failures_in_a_row, of whoever has met more."""
        return max(self._own.failures_in_a_row(peer_id), self._shared.failures_in_a_row(peer_id))

    def forbids_all(self, peer_ids: Collection[str]) -> bool:
        """As BanTable.forbids_all."""
        return self._own.forbids_all(peer_ids)

    def _note(self, bans: BanTable, attempt: Attempt, now_s: float, view: SwarmView | None) -> None:
        peer_id, cause = attempt.peer_id, attempt.cause
        if cause in PASSING:
            bans.busy(peer_id, now_s, self._aside_s(cause))
        elif cause is Cause.STALE:
            bans.stale(peer_id, now_s, view)
        elif cause is Cause.RESET:
            bans.reset(peer_id, now_s, view, began_s=attempt.began_s)
        elif cause is Cause.UNABLE:
            bans.forbid(peer_id)
        else:
            bans.failed(peer_id, now_s, view, began_s=attempt.began_s)

    def _aside_s(self, cause: Cause) -> float:
        """How long to leave a server alone that is not to blame."""
        return {Cause.BUSY: self._settings.busy_s, Cause.BACKOFF: self._settings.backoff_s}.get(cause, 0.0)
