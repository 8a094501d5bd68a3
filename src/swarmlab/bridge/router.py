"""The client's picture of the swarm: who serves what, how far away, and whom to avoid for now.

Wraps petals' RemoteSequenceManager for its connections and settings (allowed, blocked servers, adapter), but keeps
its own view and bans: petals' routing goes on choosing a dead peer until its next refresh.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from hivemind.p2p import P2P, PeerID
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer, get_dht_time
from petals.client.routing import RemoteSequenceManager
from petals.data_structures import UID_DELIMITER
from petals.server.handler import TransformerConnectionHandler
from petals.utils.ping import ping_parallel

from swarmlab.bridge.snapshot import read_records, view_from_records
from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.blame import Blame
from swarmlab.recovery.failure import Attempt, Cause, PeerFailed
from swarmlab.recovery.latency import KnownLatencies
from swarmlab.recovery.routing import DEFAULT_RTT_S, Hop, Need, NoRoute, cheapest_chain
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import Span, SwarmView

_PING_S = 1.0
_READ_PATIENCE = 3  # a read of the DHT goes on this many times ``read_view_s``, for callers after the first


@dataclass
class _Known:
    """What sessions of one client share, so that not each of them reads the DHT for itself, and not each has to find
    out for itself who is dead.

    :param bans: what concerns every session; with the settings of the first one
    :param compression: how servers want tensors compressed; None until one was asked
    :param reading: of the next view
    """

    bans: BanTable
    latencies: KnownLatencies
    compression: int | None = None
    view: SwarmView | None = None
    rtt_s: dict[str, float] = field(default_factory=dict)
    reading: asyncio.Task[SwarmView] | None = None
    pinging: asyncio.Task[None] | None = None


_known: WeakKeyDictionary[RemoteSequenceManager, _Known] = WeakKeyDictionary()


class Router:
    """Chooses servers for blocks. All methods but the constructor run on the worker's event loop."""

    def __init__(self, manager: RemoteSequenceManager, settings: RecoverySettings) -> None:
        self._manager, self._settings = manager, settings
        self._known = _known.setdefault(manager, _Known(BanTable(settings), KnownLatencies()))
        self._blame = Blame(settings, self._known.bans)
        self._rtt_s = self._known.rtt_s

    @property
    def n_blocks(self) -> int:
        return len(self._manager)

    @property
    def p2p(self) -> P2P:
        return self._manager.state.p2p

    @property
    def view(self) -> SwarmView | None:
        """The latest view that any session of the client has read; None before the first."""
        return self._known.view

    @property
    def latencies(self) -> KnownLatencies:
        """How fast servers have answered the sessions of this client."""
        return self._known.latencies

    @property
    def avoided(self) -> frozenset[str]:
        """Peers of the latest view that would not be chosen now."""
        if self.view is None:
            return frozenset()
        known = {record.peer_id for record in self.view.servers}
        return self._blame.excluded(time.monotonic(), self.view) & known

    def uids(self, span: Span) -> str:
        """How petals names the blocks of ``span`` in a request."""
        return " ".join(self._manager.block_uids[span.start : span.end])

    def request_metadata(self, span: Span, peer_id: PeerID) -> dict:
        return self._manager.get_request_metadata("rpc_inference", self.uids(span), peer_id=peer_id) or {}

    async def chain(self, span: Span, need: Need, deadline_s: float) -> tuple[Hop, ...]:
        """The cheapest chain through ``span``; waits for a server to appear until ``deadline_s`` (monotonic).

        :raises NoRoute: if none appears
        """
        asked_at_s, retry_s = time.monotonic(), self._settings.retry_s
        view = await self._fresh_view(self._settings.view_max_age_s)
        newest = view.seen_at_s >= asked_at_s
        while True:
            for last_resort in (False, True):
                excluded = self._blame.excluded(time.monotonic(), view, last_resort=last_resort)
                try:
                    return self._cheapest(view, span, need, excluded)
                except NoRoute as error:
                    too_late = time.monotonic() + retry_s > deadline_s
                    if last_resort and (too_late or self._blame.forbids_all(error.avoided)):
                        raise error from None
            if newest:
                await asyncio.sleep(retry_s)
            newest = True  # an older one is read again at once, but only the first time
            # not longer, however slow the DHT is: bans end meanwhile
            await asyncio.wait({self._start_reading()}, timeout=retry_s)
            retry_s = min(2 * retry_s, self._settings.retry_max_s)
            view = self.view or view

    async def spare(self, span: Span, need: Need, avoid: set[str]) -> Hop | None:
        """A server that could take all of ``span`` and is none of ``avoid``; None if there is none just now."""
        view = await self._fresh_view(self._settings.view_max_age_s)
        excluded = self._blame.excluded(time.monotonic(), view) | avoid
        try:
            hops = self._cheapest(view, span, need, excluded)
        except NoRoute:
            return None
        return hops[0] if len(hops) == 1 else None

    def _cheapest(
        self, view: SwarmView, span: Span, need: Need, excluded: Collection[str]
    ) -> tuple[Hop, ...]:
        suspects = self._blame.suspects()
        return cheapest_chain(view, span, need, rtt_s=self._rtt_s, excluded=excluded, suspects=suspects)

    def dial_patience_s(self, hop: Hop) -> float:
        """How long to wait for a stream to ``hop``: not so long where others could serve its blocks instead, but longer
        each time, lest a far server is never reached.
        """
        settings, view = self._settings, self.view
        if view is None:
            return settings.connect_s
        avoided = {hop.peer_id, *self._blame.excluded(time.monotonic(), view)}
        others = [record for record in view.serving() if record.peer_id not in avoided]
        if not all(any(block in record.span for record in others) for block in hop.span):
            return settings.connect_s
        rtt_s = self._rtt_s.get(hop.peer_id, DEFAULT_RTT_S)
        # one that did not answer the last ping is not far away but, most likely, gone
        near_s = min(rtt_s, DEFAULT_RTT_S) if math.isfinite(rtt_s) else 0.0
        hedge_s = max(settings.hedge_s, settings.hedge_factor * near_s)
        return min(settings.connect_s, hedge_s * 2 ** min(self._blame.failures_in_a_row(hop.peer_id), 32))

    def blame(self, attempt: Attempt) -> None:
        """Draw the consequence of a failure for later choices; once, however often it is told."""
        self._blame.failed(attempt, time.monotonic(), self.view)

    def praise(self, peer_id: str, asked_at_s: float) -> None:
        """``peer_id`` has done what it was asked for then (monotonic): an end to its series of failures."""
        self._blame.praise(peer_id, asked_at_s)

    def pardon(self, peer_ids: set[str]) -> None:
        """The request was at fault, not these peers."""
        self._blame.pardon(peer_ids)

    async def probe(self, peer_id: PeerID) -> bool:
        """Whether a server answers a small question within ``probe_s``."""
        self.look_for_others()
        stub = TransformerConnectionHandler.get_stub(self.p2p, peer_id)
        try:
            await stub.rpc_info(runtime_pb2.ExpertUID(uid=""), timeout=self._settings.probe_s)
        except Exception:  # noqa: BLE001 - whatever went wrong, it is no answer
            return False
        return True

    async def compression(self, peer_id: PeerID, block: int) -> int:
        """How this swarm's servers want tensors compressed (hivemind's CompressionType); asked once by a client."""
        if self._known.compression is None:
            stub = TransformerConnectionHandler.get_stub(self.p2p, peer_id)
            uid = runtime_pb2.ExpertUID(uid=self._manager.block_uids[block])
            try:
                # not hivemind's own limit, which is a wait_for(): see below
                async with asyncio.timeout(self._settings.first_reply_s):
                    reply = await stub.rpc_info(uid)
                info: Any = MSGPackSerializer.loads(reply.serialized_info)
                self._known.compression = int(info["inference_schema"][0][0].compression)
            except Exception as error:
                raise PeerFailed(
                    peer_id.to_base58(), str(block), Cause.UNREACHABLE, f"rpc_info: {error!r}"
                ) from error
        return self._known.compression

    async def _fresh_view(self, max_age_s: float) -> SwarmView:
        """A view not older than ``max_age_s``; an older one is used when the DHT does not answer in time.

        One hung node makes a read of the DHT take seconds. An old view is good enough meanwhile: the read goes on, and
        whoever finds no route with the old one waits for it.
        """
        view = self.view
        if view is not None and time.monotonic() - view.seen_at_s <= max_age_s:
            return view
        patience_s = self._settings.read_view_s if view is None else self._settings.renew_view_s
        reading = self._start_reading()
        try:
            # shielded: the read goes on for the next caller when this one runs out of time. No wait_for(): before
            # Python 3.12 it swallows a cancellation that comes at the moment of the result.
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(reading)
        except Exception:  # noqa: BLE001 - an older view is better than none, whatever ails the DHT
            return self.view if self.view is not None else SwarmView(self.n_blocks, ())

    def keep_fresh(self) -> None:
        """Read a view that is old again, without waiting for that; sooner while it shows servers that are avoided, to
        learn of their return before they are needed.
        """
        settings = self._settings
        self._renew(min(settings.view_age_s, settings.ban_s) if self.avoided else settings.view_age_s)

    def look_for_others(self) -> None:
        """Read a view that is not quite new: a server is late, and another may be needed soon."""
        self._renew(self._settings.probe_s)

    def _renew(self, max_age_s: float) -> None:
        """Begin to read a view that is older than that."""
        if self.view is not None and time.monotonic() - self.view.seen_at_s > max_age_s:
            self._start_reading()

    def _start_reading(self) -> asyncio.Task[SwarmView]:
        if self._known.reading is None or self._known.reading.done():
            # bounded, or one read that is never answered would keep everybody from starting another
            longest_s = _READ_PATIENCE * self._settings.read_view_s
            self._known.reading = asyncio.create_task(asyncio.wait_for(self._read(), longest_s))
            self._known.reading.add_done_callback(_heard)
        return self._known.reading

    async def _read(self) -> SwarmView:
        manager = self._manager
        prefix = manager.block_uids[0].rpartition(UID_DELIMITER)[0]
        ask = partial(read_records, prefix=prefix, n_blocks=self.n_blocks)
        records = await self._ask_dht(ask)
        view, _ = view_from_records(records, self.n_blocks, get_dht_time())
        view = replace(view, seen_at_s=time.monotonic())
        allowed, blocked = manager.allowed_servers, manager.blocked_servers
        peers = {record.peer_id: _peer(record.peer_id) for record in view.servers}
        view = view.without(
            name
            for name, peer in peers.items()
            if peer is None
            or (allowed is not None and peer not in allowed)
            or (blocked is not None and peer in blocked)
        )
        self._known.view = view
        # also those that did not answer the last ping: they may be back
        peer_ids = [record.peer_id for record in view.serving()]
        unknown = [peer_id for peer_id in peer_ids if math.isinf(self._rtt_s.get(peer_id, math.inf))]
        if unknown and (self._known.pinging is None or self._known.pinging.done()):
            self._known.pinging = asyncio.create_task(self._ping(unknown))
        return view

    async def _ping(self, peer_ids: list[str]) -> None:
        targets = [PeerID.from_base58(peer_id) for peer_id in peer_ids]
        ask = partial(ping_parallel, targets, wait_timeout=_PING_S)
        for peer_id, rtt_s in (await self._ask_dht(ask)).items():
            self._rtt_s[peer_id.to_base58()] = rtt_s

    async def _ask_dht(self, question: Any) -> Any:
        """Run a coroutine function in the process of the client's DHT node."""
        answer: Any = self._manager.dht.run_coroutine(question, return_future=True)
        return await answer


def _heard(reading: asyncio.Task[SwarmView]) -> None:
    """Whoever waits for a read hears of its error; when nobody does, there is the older view."""
    if not reading.cancelled():
        reading.exception()


def _peer(name: str) -> PeerID | None:
    """The peer of a record; None if the record names nobody that could exist."""
    try:
        return PeerID.from_base58(name)
    except ValueError:
        return None
