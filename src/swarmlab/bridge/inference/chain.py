"""The spans of one session, each at its server, and how they advance, break and are rebuilt.

Everything here runs on the worker's event loop, one step at a time. The states a span can be in: *live* (its stream
works and its server's cache holds exactly the committed positions), *lost* (no usable stream; the history says how
to rebuild it) or *in repair* (a task is rebuilding it while others go on).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hivemind.p2p import PeerID

from swarmlab.bridge.inference.history import SpanHistory
from swarmlab.bridge.inference.router import Router
from swarmlab.bridge.inference.stream import SpanStream
from swarmlab.bridge.inference.watch import watched_exchange
from swarmlab.bridge.inference.wire import (
    NO_HYPO_IDS,
    NO_PROMPTS,
    NextServer,
    Payload,
    make_request,
    read_outputs,
    step_metadata,
)
from swarmlab.recovery.failure import Cause, PeerFailed
from swarmlab.recovery.latency import ReplyLatency
from swarmlab.recovery.plan import Slice, replay_slices
from swarmlab.recovery.routing import Hop
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.recovery.steplog import StepLog, row_groups
from swarmlab.types import Span


@dataclass
class Link:
    """One span of the chain.

    :param stream: None or broken means that the span must be rebuilt from ``history``
    :param repair: the task that is rebuilding it; its result takes this link's place
    :param standby: a spare server that is fed the same history (a swarmlab.bridge.inference.standby.Standby)
    """

    span: Span
    history: SpanHistory
    latency: ReplyLatency
    stream: SpanStream | None = None
    repair: asyncio.Task[list[Link]] | None = None
    standby: Any = None
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def live(self) -> bool:
        return self.stream is not None and self.stream.failure is None


class Session:
    """What all spans of one session share: the log of steps, deep prompts, limits, and the way to the servers.

    :param max_length: positions for which servers allocate attention caches
    """

    def __init__(self, router: Router, settings: RecoverySettings, max_length: int) -> None:
        self.router, self.settings, self.max_length = router, settings, max_length
        self.log = StepLog()
        self.prompts: dict[int, torch.Tensor] = {}  # by step index, [all blocks, batch or 1, tokens, hidden]
        self.batch_size = 0
        self.push_outputs = False

    def prompts_for(self, piece: Slice, span: Span, n_steps: int) -> torch.Tensor:
        """Deep prompts that go with a slice, rows in the order that holds after ``n_steps`` steps."""
        if piece.prompt_step is None:
            return NO_PROMPTS
        prompts = self.prompts[piece.prompt_step][span.start : span.end]
        groups = row_groups(self.log, 0, 0, n_steps)
        rows = next(group.rows for group in groups if group.start <= piece.start < group.end)
        return prompts if rows is None or prompts.shape[1] == 1 else prompts[:, torch.from_numpy(rows)]

    async def ask(
        self,
        link: Link,
        payload: Payload,
        step_id: str,
        next_servers: tuple[NextServer, ...] = (),
    ) -> torch.Tensor:
        """One request to the server of ``link`` and its outputs, [batch, tokens, hidden].

        :raises PeerFailed: if the server fails
        """
        stream = link.stream
        assert stream is not None
        opening = None
        if stream.n_requests == 0:
            opening = {
                **self.router.request_metadata(link.span, stream.peer_id),
                "max_length": self.max_length,
                "alloc_timeout": self.settings.alloc_s,
            }
            next_servers = ()  # petals 2.2.0 would take those of the first request for all later ones
        compression = await self.router.compression(stream.peer_id, link.span.start)
        metadata = step_metadata(link.session_id, step_id, opening=opening, next_servers=next_servers)
        request = make_request(self.router.uids(link.span), payload, metadata, compression)
        asked_at_s = time.monotonic()
        reply = await watched_exchange(
            stream,
            request,
            payload.n_further,
            link.latency,
            lambda: self.router.probe(stream.peer_id),
            opening=opening is not None,
        )
        outputs = read_outputs(reply, payload.inputs, stream.peer_id, link.span)
        peer_id = stream.peer_id.to_base58()
        self.router.praise(peer_id, asked_at_s)
        self.router.latencies.observed(peer_id, link.latency, time.monotonic())
        return outputs

    async def replay(self, link: Link, n_steps: int, fed_steps: int = 0) -> torch.Tensor:
        """Feed the server of ``link`` its history of ``n_steps`` steps, of which it has seen ``fed_steps``.

        :returns: its outputs for what it had not seen, [batch, positions, hidden]
        :raises PeerFailed: if the server fails
        """
        inputs = link.history.inputs(self.log, n_steps)
        start = self.log[fed_steps - 1].end if fed_steps else 0
        # what it has seen is in the row order of then: its first request brings the rows into today's
        moved = row_groups(self.log, fed_steps, start, n_steps)[0].rows if fed_steps else None
        outputs = []
        for piece in replay_slices(self.log, start, n_steps, self.batch_size, self.settings.replay_tokens):
            hypo_ids = torch.from_numpy(moved) if moved is not None and piece.start == start else NO_HYPO_IDS
            prompts = self.prompts_for(piece, link.span, n_steps)
            payload = Payload(inputs[:, piece.start : piece.end], prompts, hypo_ids)
            outputs.append(await self.ask(link, payload, str(uuid.uuid4())))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    async def advance(
        self, link: Link, inputs: torch.Tensor, step_id: str, next_servers: tuple[NextServer, ...]
    ) -> torch.Tensor:
        """Send the newest step of the log to a live link; its outputs, [batch, tokens, hidden].

        :raises PeerFailed: if the server fails
        """
        index = len(self.log) - 1
        step = self.log[index]
        outputs = []
        pieces = replay_slices(self.log, step.start, index + 1, self.batch_size, self.settings.replay_tokens)
        if len(pieces) > 1:
            next_servers = ()  # pushed requests may overtake one another
        for piece in pieces:
            first = piece.start == step.start
            payload = Payload(
                inputs[:, piece.start - step.start : piece.end - step.start],
                self.prompts_for(piece, link.span, index + 1),
                torch.from_numpy(step.hypo_ids) if first and step.hypo_ids is not None else NO_HYPO_IDS,
            )
            outputs.append(await self.ask(link, payload, f"{step_id}.{piece.start}", next_servers))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    async def open(self, hop: Hop, on_broken: Callable[[SpanStream], None] | None) -> SpanStream:
        """Open a stream to the server of ``hop``.

        A dial may hang for seconds though its server is dead: libp2p asks everybody for other addresses, those that
        hang, too. So others are looked for meanwhile, and it is left for them as soon as there are any.

        :raises PeerFailed: if it cannot be reached, blaming that peer
        """

        def patience_s(waited_s: float) -> float:
            if waited_s >= self.settings.hedge_s:
                self.router.look_for_others()
            return self.router.dial_patience_s(hop)

        return await SpanStream.open(
            self.router.p2p,
            PeerID.from_base58(hop.peer_id),
            hop.span,
            patience_s=patience_s,
            on_broken=on_broken,
        )

    def expired(self, stream: SpanStream) -> PeerFailed | None:
        """A stream that its server is about to end for its age or idleness, as a failure without a culprit."""
        now_s = time.monotonic()
        idle, old = now_s - stream.used_at_s, now_s - stream.opened_at_s
        if idle < self.settings.idle_s and old < self.settings.lifetime_s:
            return None
        return PeerFailed(
            stream.peer_id.to_base58(),
            str(stream.span),
            Cause.RENEWED,
            f"idle {idle:.0f} s, open {old:.0f} s",
        )
