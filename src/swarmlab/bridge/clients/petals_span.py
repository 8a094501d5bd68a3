"""petals' own server session, unmodified, at one span: without routing, without recovery."""

from __future__ import annotations

from typing import Any

from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker
from hivemind.p2p import PeerID
from petals.client.inference_session import _ServerInferenceSession
from petals.client.routing import RemoteSequenceManager
from petals.data_structures import CHAIN_DELIMITER, RemoteSpanInfo, ServerInfo, ServerState

from swarmlab.types import Span


def span_at(peer_id: str, span: Span) -> RemoteSpanInfo:
    """What petals' client must know of a server to open a session there."""
    info = ServerInfo(ServerState.ONLINE, throughput=1.0)
    return RemoteSpanInfo(PeerID.from_base58(peer_id), span.start, span.end, info)


def open_span(manager: RemoteSequenceManager, span: RemoteSpanInfo, rpc_info: Any, max_length: int) -> Any:
    """A ``_ServerInferenceSession`` with the server of a span, which computes nothing yet.

    :param rpc_info: the manager's; asked by the caller, since the first time it takes a request of its own
    :param max_length: positions that the session may have
    """
    uids = CHAIN_DELIMITER.join(manager.block_uids[span.start : span.end])
    metadata = manager.get_request_metadata("rpc_inference", uids, peer_id=span.peer_id) or {}
    opening = _ServerInferenceSession.create(
        manager.config, manager.state.p2p, span, uids, rpc_info, max_length=max_length, **metadata
    )
    return RemoteExpertWorker.run_coroutine(opening)
