"""Whom to avoid for now, and until when. Time and records come in as arguments."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from threading import Lock

from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import SwarmView


@dataclass(frozen=True)
class _Ban:
    """Whom to avoid until when.

    :param failed_at_s: when it failed last
    :param last_resort: once the time is over, use the peer only where nobody else serves the blocks
    :param again_s: where nobody else serves the blocks, use it from then on
    """

    failed_at_s: float
    until_s: float
    streak: int
    last_resort: bool
    again_s: float
    record_expires_at_s: float | None = None


class BanTable:
    """Peers that failed, are busy, or do not serve what their record says.

    A first failure is forgiven as soon as the peer announces itself again (a record that expires later than the one
    known when it failed), so a server that returns is used at once; a peer that fails repeatedly has to sit out its
    ban as well, which doubles each time, unless nobody else serves the blocks.

    One table may be told by several sessions, on any thread: one server that dies breaks a stream of each of them, and
    that is one failure. What was begun before a failure says nothing new about it, neither for nor against the peer.
    """

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self._bans: dict[str, _Ban] = {}
        self._lock = Lock()

    def failed(
        self, peer_id: str, now_s: float, view: SwarmView | None, *, began_s: float = math.inf
    ) -> None:
        """``peer_id`` broke a stream, hung, or could not be reached.

        :param began_s: when the stream was opened, or the dial began
        """
        with self._lock:
            self._fail(peer_id, now_s, view, began_s)

    def reset(self, peer_id: str, now_s: float, view: SwarmView | None, *, began_s: float = math.inf) -> None:
        """``peer_id`` is alive but has forgotten our session: others first; if there are none, itself at once.

        It counts as a failure, but where nobody else serves the blocks the waits begin with none and ``retry_s``.
        """
        with self._lock:
            self._fail(peer_id, now_s, view, began_s)
            ban = self._bans[peer_id]
            wait_s = self._settings.retry_s * 2 ** min(ban.streak - 2, 32) if ban.streak > 1 else 0.0
            self._bans[peer_id] = replace(ban, again_s=min(now_s + wait_s, ban.until_s))

    def _fail(self, peer_id: str, now_s: float, view: SwarmView | None, began_s: float) -> None:
        known = self._bans.get(peer_id)
        if known is not None and known.streak and began_s <= known.failed_at_s:
            return
        streak = self._streak(peer_id) + 1
        length = min(self._settings.ban_s * 2 ** min(streak - 1, 32), self._settings.ban_max_s)
        until_s = now_s + length
        self._bans[peer_id] = _Ban(now_s, until_s, streak, True, until_s, _expiry(view, peer_id))

    def stale(self, peer_id: str, now_s: float, view: SwarmView | None) -> None:
        """``peer_id`` is alive but does not serve the blocks of its record: wait for a newer record."""
        until_s = now_s + self._settings.ban_max_s
        with self._lock:
            streak = self._streak(peer_id)
            self._bans[peer_id] = _Ban(now_s, until_s, streak, True, until_s, _expiry(view, peer_id))

    def busy(self, peer_id: str, now_s: float, aside_s: float) -> None:
        """``peer_id`` cannot be used at the moment and is not to blame: ask again in ``aside_s``."""
        if aside_s > 0:
            until_s = now_s + aside_s
            with self._lock:
                known = self._bans.get(peer_id)
                failed_at_s = known.failed_at_s if known is not None else -math.inf
                self._bans[peer_id] = _Ban(failed_at_s, until_s, self._streak(peer_id), False, until_s)

    def forbid(self, peer_id: str) -> None:
        """``peer_id`` can never do what this session needs."""
        with self._lock:
            self._bans[peer_id] = _Ban(math.inf, math.inf, self._streak(peer_id), False, math.inf)

    def succeeded(self, peer_id: str, *, asked_at_s: float = math.inf) -> None:
        """``peer_id`` has done what it was asked for at ``asked_at_s``: its failures before that are past."""
        with self._lock:
            ban = self._bans.get(peer_id)
            if ban is not None and ban.failed_at_s <= asked_at_s:
                del self._bans[peer_id]

    def excluded(self, now_s: float, view: SwarmView, *, last_resort: bool = False) -> frozenset[str]:
        """Peers to avoid now, given what the swarm announces now.

        :param last_resort: allow peers that failed before and have not announced themselves since, once their time
            is over, any that have announced themselves since, and those that only ended our session
        """
        return frozenset(
            peer
            for peer, ban in self._known()
            if (now_s < ban.again_s if last_resort else now_s < ban.until_s or ban.last_resort)
            and not _renewed(ban, peer, view, forgive_series=last_resort)
        )

    def suspects(self) -> frozenset[str]:
        """Peers whose last request failed, banned or not."""
        return frozenset(peer for peer, ban in self._known() if ban.streak)

    def failures_in_a_row(self, peer_id: str) -> int:
        """Of that peer, up to now."""
        with self._lock:
            return self._streak(peer_id)

    def forbids_all(self, peer_ids: Collection[str]) -> bool:
        """Whether there are such peers and none of them can ever help."""
        bans = [self._bans.get(peer_id) for peer_id in peer_ids]
        return bool(bans) and all(ban is not None and ban.until_s == math.inf for ban in bans)

    def next_chance_s(self, peer_ids: Collection[str], now_s: float) -> float:
        """When the first of those peers that are avoided even as a last resort is so no more; infinite if none is."""
        waits = {peer: ban.again_s for peer, ban in self._known()}
        return min((at_s for peer in peer_ids if (at_s := waits.get(peer, now_s)) > now_s), default=math.inf)

    def _known(self) -> list[tuple[str, _Ban]]:
        with self._lock:
            return list(self._bans.items())

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
