"""Rebuilds lost spans of one session: when a step needs them, and beside whatever else goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from swarmlab.bridge.inference.chain import Link, Session
from swarmlab.bridge.inference.rebuild import Budget, Recovery, close_streams, rebuild
from swarmlab.bridge.inference.standby import Standbys
from swarmlab.bridge.inference.stream import SpanStream
from swarmlab.recovery.failure import PeerFailed

logger = logging.getLogger(__name__)

EventHandler = Callable[[dict[str, Any]], None]


class Repairs:
    """All coroutines run on the worker's event loop.

    :param links: of the session, changed in place by its flow
    :param turn: held while a step or a rewind is under way
    :param on_event: told of every recovery that is completed, on the event loop's thread; must not block
    :param on_opening: likewise of every opening of spans under which nobody failed
    """

    def __init__(
        self,
        session: Session,
        links: list[Link],
        turn: asyncio.Lock,
        standbys: Standbys,
        on_event: EventHandler | None,
        on_opening: EventHandler | None,
    ) -> None:
        self._session, self._links, self._turn, self._standbys = session, links, turn, standbys
        self._on_event, self._on_opening = on_event, on_opening
        self._closed = False
        self._budget: Budget | None = None

    def begin(self, indices: range) -> None:
        """Start rebuilding lost spans at once, beside whatever else goes on: their histories are complete."""
        for index in indices:
            link = self._links[index]
            if not link.live and link.repair is None:
                committed = self._session.log.steps_before(link.history.n_tokens)
                link.repair = asyncio.create_task(self._repair(link, committed))

    async def end_of(self, link: Link) -> list[Link]:
        """The links that a repair brings, or the link itself, to be rebuilt by the step that waits for it."""
        assert link.repair is not None
        self.step_budget()  # a repair begun before this step must not lengthen what the step may take
        try:
            return await asyncio.shield(link.repair)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - the step tries again itself and reports what it meets
            link.repair = None
            return [link]

    async def rebuild(
        self, link: Link, n_steps: int, failure: PeerFailed | None, detect_s: float, budget: Budget
    ) -> tuple[list[Link], torch.Tensor | None]:
        """Rebuild ``link`` with its first ``n_steps`` steps and tell the listener how it went."""
        recovery = Recovery(link.span)
        if failure is not None:
            recovery.note(failure, detect_s)
            self._session.router.blame(failure.attempt)
        if link.stream is not None:
            close_streams(self._session, [link])
        rebuilt = await self._from_standby(link, n_steps, recovery)
        if rebuilt is None:
            rebuilt = await rebuild(self._session, link, n_steps, budget, recovery, self._on_broken)
        self._tell(recovery, n_steps)
        return rebuilt

    def step_budget(self) -> Budget:
        """What all recoveries of the step under way may spend together, from the first of them on."""
        if self._budget is None:
            self._budget = Budget(self._session.settings)
        return self._budget

    def end_of_step(self) -> None:
        """The next step has a budget of its own."""
        self._budget = None

    def stop(self, *, for_good: bool = False) -> None:
        """Let go of all repairs; ``for_good``: and begin none any more when a stream ends."""
        self._closed = self._closed or for_good
        for link in self._links:
            if link.repair is None:
                continue
            repaired = link.repair.done() and not link.repair.cancelled() and link.repair.exception() is None
            if repaired:  # finished, but no step has taken the new links over yet
                close_streams(self._session, link.repair.result())
            link.repair.cancel()
            link.repair = None

    async def _repair(self, link: Link, n_steps: int) -> list[Link]:
        failure = link.stream.failure if link.stream else None
        budget = self.step_budget() if self._turn.locked() else Budget(self._session.settings)
        links, _ = await self.rebuild(link, n_steps, failure, 0.0, budget)
        return links

    async def _from_standby(
        self, lost: Link, n_steps: int, recovery: Recovery
    ) -> tuple[list[Link], torch.Tensor | None] | None:
        taken = await self._standbys.take(lost, n_steps, recovery)
        if taken is None:
            return None
        link, outputs = taken
        if link.stream is not None:
            link.stream.on_broken = self._on_broken
        return [link], outputs

    def _on_broken(self, stream: SpanStream) -> None:
        """A stream ended between two steps: repair its span before the next token is due."""
        if self._closed or self._turn.locked():
            return  # a step under way, or its end, meets the broken stream itself
        expired = self._session.expired(stream) is not None
        for index, link in enumerate(self._links):
            if link.stream is not stream:
                continue
            if expired:  # its server's time limits ended it: nobody failed, and perhaps no step follows
                link.stream = None
            else:
                self.begin(range(index, index + 1))

    def _tell(self, recovery: Recovery, n_steps: int) -> None:
        listener = self._on_opening if recovery.cause is None else self._on_event
        if listener is None:
            return
        told = {"span": str(recovery.span), "step": n_steps - 1, "total_s": recovery.total_s}
        attempts = [str(attempt) for attempt in recovery.attempts]
        try:
            listener({**asdict(recovery), **told, "attempts": attempts})
        except Exception:  # whatever a listener does, the span is rebuilt
            logger.exception("the listener to recoveries failed")
