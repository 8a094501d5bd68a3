"""Chooses servers for a session: who could serve blocks now, how long to wait for them, and whom to avoid for now.

Wraps petals' RemoteSequenceManager for its connections and settings (allowed, blocked servers, adapter), but keeps
its own view and bans: petals' routing goes on choosing a dead peer until its next refresh. The decisions themselves
are pure (``swarmlab.recovery``: routing, dialing, blame); here is what they are asked with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from hivemind.p2p import P2P, PeerID
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from petals.client.routing import RemoteSequenceManager
from petals.server.handler import TransformerConnectionHandler

from swarmlab.bridge.inference.views import Views
from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.blame import Blame
from swarmlab.recovery.dialing import dial_patience_s
from swarmlab.recovery.failure import Attempt, Cause, PeerFailed
from swarmlab.recovery.latency import KnownLatencies
from swarmlab.recovery.routing import DEFAULT_RTT_S, Hop, Need, NoRoute, cheapest_chain
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import Span, SwarmView

# Before a ban that is about to end is looked at again: clocks may round what is left to nothing.
LEAST_WAIT_S = 0.01


@dataclass
class _Known:
    """What sessions of one client share, so that not each of them reads the DHT for itself, and not each has to find
    out for itself who is dead or slow.

    :param bans: what concerns every session; with the settings of the first one
    :param compression: how servers want tensors compressed; None until one was asked
    """

    bans: BanTable
    latencies: KnownLatencies
    views: Views
    compression: int | None = None


_known: WeakKeyDictionary[RemoteSequenceManager, _Known] = WeakKeyDictionary()


class Router:
    """Chooses servers for blocks. All methods but the constructor run on the worker's event loop."""

    def __init__(self, manager: RemoteSequenceManager, settings: RecoverySettings) -> None:
        self._manager, self._settings = manager, settings
        known = _known.get(manager)
        if known is None:
            views = self._make_views(manager, settings)
            known = _known[manager] = _Known(BanTable(settings), KnownLatencies(), views)
        self._known, self._views = known, known.views
        self._blame = Blame(settings, known.bans)

    def _make_views(self, manager: RemoteSequenceManager, settings: RecoverySettings) -> Views:
        return Views(manager, settings)

    @property
    def n_blocks(self) -> int:
        return len(self._manager)

    @property
    def p2p(self) -> P2P:
        return self._manager.state.p2p

    @property
    def view(self) -> SwarmView | None:
        """The latest view that any session of the client has read; None before the first."""
        return self._views.newest

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
        view = await self._views.fresh(self._settings.view_max_age_s)
        newest = view.seen_at_s >= asked_at_s
        while True:
            avoided: Collection[str] = ()
            for last_resort in (False, True):
                excluded = self._blame.excluded(time.monotonic(), view, last_resort=last_resort)
                try:
                    return self._cheapest(view, span, need, excluded)
                except NoRoute as error:
                    avoided = error.avoided
                    too_late = time.monotonic() + retry_s > deadline_s
                    if last_resort and (too_late or self._blame.forbids_all(avoided)):
                        raise error from None
            if newest:
                # not beyond the moment at which one of them may be asked again
                now_s = time.monotonic()
                chance_s = self._blame.next_chance_s(avoided, now_s) - now_s
                wait_s = min(retry_s, max(chance_s, LEAST_WAIT_S))
                await asyncio.sleep(wait_s)
            newest = True  # an older one is read again at once, but only the first time
            # not longer, however slow the DHT is: bans end meanwhile
            view = await self._views.newer(view, retry_s)
            retry_s = min(2 * retry_s, self._settings.retry_max_s)

    async def spare(self, span: Span, need: Need, avoid: set[str]) -> Hop | None:
        """A server that could take all of ``span`` and is none of ``avoid``; None if there is none just now."""
        view = await self._views.fresh(self._settings.view_max_age_s)
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
        rtt_s = self._views.rtt_s
        return cheapest_chain(view, span, need, rtt_s=rtt_s, excluded=excluded, suspects=suspects)

    def dial_patience_s(self, hop: Hop) -> float:
        """How long to wait for a stream to ``hop``, as things are now."""
        view, peer_id = self.view, hop.peer_id
        if view is None:
            return self._settings.connect_s
        avoided = self._blame.excluded(time.monotonic(), view)
        rtt_s, n_failed = (
            self._views.rtt_s.get(peer_id, DEFAULT_RTT_S),
            self._blame.failures_in_a_row(peer_id),
        )
        return dial_patience_s(hop, view, avoided, self._settings, rtt_s=rtt_s, n_failed=n_failed)

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
        """Whether a server answers a small question within ``probe_s``, or more after failures."""
        self.look_for_others()
        patience_s = self._answer_s(self._settings.probe_s, peer_id)
        stub = TransformerConnectionHandler.get_stub(self.p2p, peer_id)
        try:
            await stub.rpc_info(runtime_pb2.ExpertUID(uid=""), timeout=patience_s)
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
                async with asyncio.timeout(self._answer_s(self._settings.first_reply_s, peer_id)):
                    reply = await stub.rpc_info(uid)
                info: Any = MSGPackSerializer.loads(reply.serialized_info)
                self._known.compression = int(info["inference_schema"][0][0].compression)
            except Exception as error:
                raise PeerFailed(
                    peer_id.to_base58(), str(block), Cause.UNREACHABLE, f"rpc_info: {error!r}"
                ) from error
        return self._known.compression

    def _answer_s(self, usual_s: float, peer_id: PeerID) -> float:
        """How long a server may take for a small question: twice as long after each failure in a row, lest one that is
        slow, or far from here, is never reached.
        """
        n_failed = self._blame.failures_in_a_row(peer_id.to_base58())
        return max(usual_s, min(usual_s * 2 ** min(n_failed, 32), self._settings.hard_floor_s))

    def keep_fresh(self) -> None:
        """Read a view that is old again, without waiting for that; sooner while it shows servers that are avoided, to
        learn of their return before they are needed.
        """
        settings = self._settings
        self._views.renew(min(settings.view_age_s, settings.ban_s) if self.avoided else settings.view_age_s)

    def look_for_others(self) -> None:
        """Read a view that is not quite new: a server is late, and another may be needed soon."""
        self._views.renew(self._settings.probe_s)
