"""Whom to avoid for now, and until when. Time and records come in as arguments."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import SwarmView


@dataclass(frozen=True)
class _Ban:
    """``last_resort``: once the time is over, use the peer only where nobody else serves the blocks."""

    until_s: float
    streak: int
    last_resort: bool
    record_expires_at_s: float | None = None


class BanTable:
    """Peers that failed, are busy, or do not serve what their record says.

    A first failure is forgiven as soon as the peer announces itself again (a record that expires later than the one
    known when it failed), so a server that returns is used at once; a peer that fails repeatedly has to sit out its
    ban as well, which doubles each time, unless nobody else serves the blocks.
    """

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self._bans: dict[str, _Ban] = {}

    def failed(self, peer_id: str, now_s: float, view: SwarmView | None) -> None:
        """``peer_id`` broke a stream, hung, or could not be reached."""
        streak = self._streak(peer_id) + 1
        length = min(self._settings.ban_s * 2 ** min(streak - 1, 32), self._settings.ban_max_s)
        self._bans[peer_id] = _Ban(now_s + length, streak, True, _expiry(view, peer_id))

    def stale(self, peer_id: str, now_s: float, view: SwarmView | None) -> None:
        """``peer_id`` is alive but does not serve the blocks of its record: wait for a newer record."""
        self._bans[peer_id] = _Ban(
            now_s + self._settings.ban_max_s, self._streak(peer_id), True, _expiry(view, peer_id)
        )

    def busy(self, peer_id: str, now_s: float, aside_s: float) -> None:
        """``peer_id`` cannot be used at the moment and is not to blame: ask again in ``aside_s``."""
        if aside_s > 0:
            self._bans[peer_id] = _Ban(now_s + aside_s, self._streak(peer_id), False)

    def forbid(self, peer_id: str) -> None:
        """``peer_id`` can never do what this session needs."""
        self._bans[peer_id] = _Ban(float("inf"), self._streak(peer_id), False)

    def succeeded(self, peer_id: str) -> None:
        self._bans.pop(peer_id, None)

    def excluded(self, now_s: float, view: SwarmView, *, last_resort: bool = False) -> frozenset[str]:
        """Peers to avoid now, given what the swarm announces now.

        :param last_resort: allow peers that failed before and have not announced themselves since, once their time
            is over, and any that have announced themselves since
        """
        return frozenset(
            peer
            for peer, ban in self._bans.items()
            if (now_s < ban.until_s or (ban.last_resort and not last_resort))
            and not _renewed(ban, peer, view, forgive_series=last_resort)
        )

    def suspects(self) -> frozenset[str]:
        """Peers whose last request failed, banned or not."""
        return frozenset(peer for peer, ban in self._bans.items() if ban.streak)

    def forbids_all(self, peer_ids: Collection[str]) -> bool:
        """Whether there are such peers and none of them can ever help."""
        bans = [self._bans.get(peer_id) for peer_id in peer_ids]
        return bool(bans) and all(ban is not None and ban.until_s == float("inf") for ban in bans)

    def _streak(self, peer_id: str) -> int:
        ban = self._bans.get(peer_id)
        return ban.streak if ban is not None else 0


def _expiry(view: SwarmView | None, peer_id: str) -> float | None:
    record = view.get(peer_id) if view is not None else None
    return record.expires_at_s if record is not None else None


def _renewed(ban: _Ban, peer_id: str, view: SwarmView, *, forgive_series: bool) -> bool:
    if ban.record_expires_at_s is None or (ban.streak > 1 and not forgive_series):
        return False
    now_expires_at_s = _expiry(view, peer_id)
    return now_expires_at_s is not None and now_expires_at_s > ban.record_expires_at_s
