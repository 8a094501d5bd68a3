"""The swarm as one client sees it: read from the DHT now and then, by one for all of its sessions."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from hivemind.p2p import PeerID
from hivemind.utils import get_dht_time
from petals.client.routing import RemoteSequenceManager
from petals.data_structures import UID_DELIMITER
from petals.utils.ping import ping_parallel

from swarmlab.bridge.snapshot import read_records, view_from_records
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import SwarmView

_PING_S = 1.0
_READ_PATIENCE = (
    3  # a read of the DHT goes on this many times ``read_view_s``, for callers after the first; pings too
)

T = TypeVar("T")


class Views:
    """Reads and keeps the newest view, and how far away its servers are. Lives on the worker's event loop.

    :param settings: of the client's first session
    """

    def __init__(self, manager: RemoteSequenceManager, settings: RecoverySettings) -> None:
        self._manager, self._settings = manager, settings
        self.newest: SwarmView | None = None
        self.rtt_s: dict[str, float] = {}  # infinite for who did not answer
        self._reading: asyncio.Task[SwarmView] | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def fresh(self, max_age_s: float) -> SwarmView:
        """A view not older than ``max_age_s``; an older one is used when the DHT does not answer in time.

        One hung node makes a read of the DHT take seconds. An old view is good enough meanwhile: the read goes on, and
        whoever finds no route with the old one waits for it.
        """
        view = self.newest
        if view is not None and time.monotonic() - view.seen_at_s <= max_age_s:
            return view
        patience_s = self._settings.read_view_s if view is None else self._settings.renew_view_s
        reading = self.read()
        try:
            # shielded: the read goes on for the next caller when this one runs out of time. No wait_for(): before
            # Python 3.12 it swallows a cancellation that comes at the moment of the result.
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(reading)
        except Exception:  # noqa: BLE001 - an older view is better than none, whatever ails the DHT
            return self.newest if self.newest is not None else SwarmView(len(self._manager), ())

    async def newer(self, than: SwarmView, patience_s: float) -> SwarmView:
        """The view that a read brings that is under way or begins now, or the newest there is after that time."""
        await asyncio.wait({self.read()}, timeout=patience_s)
        return self.newest or than

    def renew(self, max_age_s: float) -> None:
        """Begin to read again if there is a view, and it is older than that."""
        if self.newest is not None and time.monotonic() - self.newest.seen_at_s > max_age_s:
            self.read()

    def read(self) -> asyncio.Task[SwarmView]:
        """The read that is under way; a new one if there is none."""
        if self._reading is None or self._reading.done():
            self._reading = self._bounded(self._read())
        return self._reading

    def _bounded(self, question: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Bounded, or one question that is never answered would keep everybody from asking another."""
        longest_s = _READ_PATIENCE * self._settings.read_view_s
        task = asyncio.create_task(asyncio.wait_for(question, longest_s))
        task.add_done_callback(_heard)
        return task

    async def _read(self) -> SwarmView:
        manager, n_blocks = self._manager, len(self._manager)
        prefix = manager.block_uids[0].rpartition(UID_DELIMITER)[0]
        records = await self._ask_dht(partial(read_records, prefix=prefix, n_blocks=n_blocks))
        view, _ = view_from_records(records, n_blocks, get_dht_time())
        view = self.newest = self._allowed(replace(view, seen_at_s=time.monotonic()))
        # also those that did not answer the last ping: they may be back
        peer_ids = [record.peer_id for record in view.serving()]
        unknown = [peer_id for peer_id in peer_ids if math.isinf(self.rtt_s.get(peer_id, math.inf))]
        if unknown and (self._pinging is None or self._pinging.done()):
            self._pinging = self._bounded(self._ping(unknown))
        return view

    def _allowed(self, view: SwarmView) -> SwarmView:
        """Without those that petals' own settings leave out, and those that cannot exist."""
        allowed, blocked = self._manager.allowed_servers, self._manager.blocked_servers
        peers = {record.peer_id: _peer(record.peer_id) for record in view.servers}
        return view.without(
            name
            for name, peer in peers.items()
            if peer is None
            or (allowed is not None and peer not in allowed)
            or (blocked is not None and peer in blocked)
        )

    async def _ping(self, peer_ids: list[str]) -> None:
        targets = [PeerID.from_base58(peer_id) for peer_id in peer_ids]
        ask = partial(ping_parallel, targets, wait_timeout=_PING_S)
        for peer_id, rtt_s in (await self._ask_dht(ask)).items():
            self.rtt_s[peer_id.to_base58()] = rtt_s

    async def _ask_dht(self, question: Any) -> Any:
        """Run a coroutine function in the process of the client's DHT node."""
        answer: Any = self._manager.dht.run_coroutine(question, return_future=True)
        return await answer


def _heard(task: asyncio.Task[Any]) -> None:
    """Whoever waits for it hears of its error; when nobody does, there is what was known before."""
    if not task.cancelled():
        task.exception()


def _peer(name: str) -> PeerID | None:
    """The peer of a record; None if the record names nobody that could exist."""
    try:
        return PeerID.from_base58(name)
    except ValueError:
        return None
