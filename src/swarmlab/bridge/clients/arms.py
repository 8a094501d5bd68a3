"""The client side of each recovery arm: how it opens a session, and how to look at it without changing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import torch
from petals.client.inference_session import InferenceSession, _ServerInferenceSession
from petals.client.routing import RemoteSequenceManager

from swarmlab.bridge.clients.issue_patch import PatchedInferenceSession
from swarmlab.bridge.inference.chain import Link
from swarmlab.bridge.inference.local_session import LocalSession
from swarmlab.bridge.inference.repairs import EventHandler
from swarmlab.bridge.inference.wire import NextServer, Payload
from swarmlab.bridge.models import load_plain, open_checkpoint
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.recovery.settings import RecoverySettings

AnySession = InferenceSession | FaultTolerantSession | LocalSession
# called with (start block, end block, peer id) just before a span is sent its part of a step
SpanHook = Callable[[int, int, str], None]

PETALS_SESSIONS: Mapping[str, type[InferenceSession]] = {
    "petals": InferenceSession,
    "reference": InferenceSession,  # the same, in a swarm without failures
    "issue_patch": PatchedInferenceSession,
}
# our own arms, and the recovery settings in which they differ from those of the run
OURS: Mapping[str, Mapping[str, Any]] = {"swarmlab": {}, "swarmlab_standby": {"standby_tokens": 16}}
LOCAL = "plain"  # no swarm: what every arm must equal


def open_session(
    arm: str,
    manager: RemoteSequenceManager,
    max_length: int,
    *,
    model_path: str,
    recovery: Mapping[str, Any],
    on_event: EventHandler,
    on_opening: EventHandler | None = None,
) -> AnySession:
    """A session of ``arm``; servers are contacted at its first step.

    :param model_path: folder of the checkpoint, for the plain arm
    :param recovery: RecoverySettings by name, for our own arms
    """
    if arm == LOCAL:
        return LocalSession(load_plain(open_checkpoint(model_path)))
    if arm in OURS:
        settings = RecoverySettings(**{**recovery, **OURS[arm]})
        return FaultTolerantSession(
            manager, max_length, settings=settings, on_event=on_event, on_opening=on_opening
        )
    return PETALS_SESSIONS[arm](manager, max_length)


def chain_of(session: AnySession) -> list[dict[str, Any]]:
    """The spans of a session and their servers, as they are now."""
    if isinstance(session, LocalSession):
        return []
    if isinstance(session, FaultTolerantSession):
        return [{"start": span.start, "end": span.end, "peer": peer} for span, peer in session.chain]
    return [
        {"start": one.span.start, "end": one.span.end, "peer": one.span.peer_id.to_base58()}
        for one in session._server_sessions
    ]


def observe_spans(session: AnySession, hook: SpanHook) -> None:
    """Have ``hook`` called before each request to a span; what the session does is not changed.

    For petals' sessions the class itself is observed, so use this in a process that runs one session only.
    """
    if isinstance(session, LocalSession):
        return
    if isinstance(session, FaultTolerantSession):
        _observe_ours(session, hook)
        return
    original = _ServerInferenceSession.step

    def observed(one: _ServerInferenceSession, *args: Any, **kwargs: Any) -> torch.Tensor:
        hook(one.span.start, one.span.end, one.span.peer_id.to_base58())
        return original(one, *args, **kwargs)

    _ServerInferenceSession.step = observed


def _observe_ours(session: FaultTolerantSession, hook: SpanHook) -> None:
    shared = session._flow.session
    original = shared.ask

    async def observed(
        link: Link, payload: Payload, step_id: str, next_servers: tuple[NextServer, ...] = ()
    ) -> torch.Tensor:
        assert link.stream is not None
        peer_id = link.stream.peer_id.to_base58()
        # the hook may wait for the orchestrator; the event loop must go on meanwhile
        await asyncio.to_thread(hook, link.span.start, link.span.end, peer_id)
        return await original(link, payload, step_id, next_servers)

    shared.ask = observed
