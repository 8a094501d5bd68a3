"""Drives one step at a time through the chain of a session, and keeps steps atomic.

After a step either every span has advanced by it, or the session is as it was before: the log and all histories are
rewound and every stream is dropped (petals 2.2.0 servers cannot take a step back), to be rebuilt when next needed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass

import numpy as np
import torch

from swarmlab.bridge.inference.chain import Link, Session
from swarmlab.bridge.inference.history import SpanHistory
from swarmlab.bridge.inference.rebuild import close_streams
from swarmlab.bridge.inference.repairs import EventHandler, Repairs
from swarmlab.bridge.inference.standby import StandbyCost, Standbys
from swarmlab.bridge.inference.wire import NextServer
from swarmlab.recovery.failure import Cause, PeerFailed
from swarmlab.recovery.latency import ReplyLatency
from swarmlab.recovery.plan import merge_unusable
from swarmlab.recovery.room import room_tokens
from swarmlab.types import Span


@dataclass(frozen=True)
class StepInput:
    """One step as the user gave it, checked and on the CPU.

    :param hidden: [batch, tokens, hidden]
    :param prompts: deep prompts [all blocks, batch or 1, tokens, hidden] or None
    :param hypo_ids: int64 [batch] or None
    """

    hidden: torch.Tensor
    prompts: torch.Tensor | None
    hypo_ids: np.ndarray | None


class Flow:
    """The chain of one session. All coroutines run on the worker's event loop.

    :param on_event: told of every recovery that is completed, on the event loop's thread; must not block
    :param on_opening: likewise of every opening of spans under which nobody failed
    """

    def __init__(
        self, session: Session, on_event: EventHandler | None, on_opening: EventHandler | None = None
    ) -> None:
        self.session = session
        self._turn = asyncio.Lock()
        self._links: list[Link] = []  # always this list: repairs look at it, too
        self._closed = False
        self._room_tokens = 0
        self._standbys = Standbys(session, session.settings.standby_tokens)
        self._repairs = Repairs(session, self._links, self._turn, self._standbys, on_event, on_opening)

    @property
    def spans(self) -> list[tuple[Span, str | None]]:
        """The chain as it stands: each span and the peer that serves it, None where it must be rebuilt."""
        return [
            (link.span, link.stream.peer_id.to_base58() if link.live and link.stream else None)
            for link in self._links
        ]

    @property
    def standby_cost(self) -> StandbyCost:
        """What warm standbys have cost so far."""
        return self._standbys.cost

    @property
    def history_bytes(self) -> int:
        """Memory held by the histories of all spans."""
        return sum(link.history.n_bytes for link in self._links)

    def history_of(self, start_block: int, n_steps: int) -> torch.Tensor | None:
        """Inputs of the first ``n_steps`` steps to the span that begins at a block; None if none does or if the
        row order of then is not known any more.
        """
        for link in self._links:
            if link.span.start == start_block and link.history.knows(self.session.log, n_steps):
                return link.history.inputs(self.session.log, n_steps)
        return None

    async def step(self, step: StepInput) -> torch.Tensor:
        """Run one step through all blocks; its outputs, [batch, tokens, hidden].

        :raises RecoveryFailed, RequestRejected: the session is then as it was before the step
        :raises HistoryTooLarge: likewise, and nothing was sent
        """
        async with self._turn:
            self._make_room(step.hidden)
            n_steps = len(self.session.log)
            try:
                return await self._step(step)
            except BaseException:
                self._rewind(n_steps)
                raise
            finally:
                self._repairs.end_of_step()

    async def rewind(self, position: int) -> None:
        """Forget everything from ``position`` on.

        :raises ValueError: if ``position`` is not between two steps
        """
        async with self._turn:
            n_steps = self.session.log.steps_before(position)
            if n_steps < len(self.session.log):
                self._rewind(n_steps)

    async def close(self) -> None:
        """End the session on all servers; bounded by ``close_s`` even if they hang."""
        async with self._turn:
            self._closed = True
            self._repairs.stop(for_good=True)
            self._standbys.drop(self._links)
            streams = [link.stream for link in self._links if link.stream is not None]
            self._links.clear()
            await asyncio.gather(*(stream.aclose(self.session.settings.close_s) for stream in streams))

    def drop(self) -> None:
        """End the session without waiting for anything; for finalizers, on the loop's thread."""
        self._closed = True
        self._repairs.stop(for_good=True)
        self._standbys.drop(self._links)
        close_streams(self.session, self._links)
        self._links.clear()

    def _make_room(self, inputs: torch.Tensor) -> None:
        """Decide for how many positions the histories of all spans, as far as they are known, may have room.

        :raises HistoryTooLarge: if they would outgrow their limit with these inputs
        """
        session, histories = self.session, [link.history for link in self._links] or [SpanHistory()]
        self._room_tokens = room_tokens(
            lambda room: sum(history.bytes_with(inputs, room) for history in histories),
            limit_bytes=session.settings.history_max_bytes,
            max_length=session.max_length,
            shape=(len(histories), inputs.shape[0], inputs.shape[2] * inputs.dtype.itemsize),
            position=session.log.position + inputs.shape[1],
        )

    async def _step(self, step: StepInput) -> torch.Tensor:
        session = self.session
        if self._closed:
            raise RuntimeError("the session is closed")
        session.batch_size = step.hidden.shape[0]
        if not self._links:
            whole = Span(0, session.router.n_blocks)
            self._links.append(Link(whole, SpanHistory(), ReplyLatency(session.settings)))
        self._drop_expired()
        self._repairs.begin(range(1, len(self._links)))

        entry = session.log.append(
            step.hidden.shape[1],
            prompt_tokens=0 if step.prompts is None else step.prompts.shape[2],
            hypo_ids=step.hypo_ids,
        )
        n_steps = len(session.log)
        if step.prompts is not None:
            session.prompts[n_steps - 1] = step.prompts
        step_id, hidden, index = str(uuid.uuid4()), step.hidden, 0
        while index < len(self._links):
            link = self._links[index]
            if link.repair is not None:
                self._links[index : index + 1] = await self._repairs.end_of(link)
                continue
            link.history.append(hidden, self._room_tokens)
            started_at_s, failure = time.monotonic(), link.stream.failure if link.stream else None
            if link.live:
                try:
                    hidden = await session.advance(link, hidden, step_id, self._next_servers(index))
                    index += 1
                    continue
                except PeerFailed as error:
                    failure = error
            self._repairs.begin(range(index + 1, len(self._links)))
            detect_s, budget = time.monotonic() - started_at_s, self._repairs.step_budget()
            links, outputs = await self._repairs.rebuild(link, n_steps, failure, detect_s, budget)
            assert outputs is not None
            self._links[index : index + 1] = links
            # of the replay's outputs only the newest tokens go on to spans that have not seen them (fault 2)
            hidden = outputs[:, -entry.n_tokens :]
            index += len(links)
        self._repairs.begin(range(len(self._links)))  # those that broke after their part of the step
        self._standbys.follow(self._links)
        session.router.keep_fresh()
        return hidden

    def _drop_expired(self) -> None:
        for link in self._links:
            expiry = self.session.expired(link.stream) if link.live and link.stream else None
            if expiry is not None and link.stream is not None:
                link.stream.abandon(Cause.RENEWED, expiry.attempt.detail)

    def _next_servers(self, index: int) -> tuple[NextServer, ...]:
        """The live spans right after ``index``, to which its server may push its outputs directly.

        A petals server pushes with the deep prompts and hypo_ids of its *first* request (2.2.0 pushes nothing): none
        may be offered in a session that has any.
        """
        session = self.session
        if not session.push_outputs or session.prompts or session.log.reorders_between(0, len(session.log)):
            return ()
        servers: list[NextServer] = []
        for link in self._links[index + 1 :]:
            if link.repair is not None or not link.live or link.stream is None or not link.stream.n_requests:
                break
            span, peer_id = link.span, link.stream.peer_id.to_base58()
            servers.append((peer_id, link.session_id, span.start, span.end))
        return tuple(servers)

    def _rewind(self, n_steps: int) -> None:
        session = self.session
        self._repairs.stop()
        self._standbys.drop(self._links)
        close_streams(session, self._links)
        usable = {i for i, link in enumerate(self._links) if link.history.rewind(session.log, n_steps)}
        merged = merge_unusable([link.span for link in self._links], usable)
        self._links[:] = [
            Link(span, self._links[source].history, self._links[source].latency) for span, source in merged
        ]
        session.log.truncate(n_steps)
        session.prompts = {index: prompts for index, prompts in session.prompts.items() if index < n_steps}
