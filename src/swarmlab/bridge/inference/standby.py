"""Warm standbys: spare servers that are fed the history while generation goes on.

Beyond the paper: its recovery replays the whole history after a failure, and cannot be faster than one connection and
one prefill of it. A standby has seen all but the newest tokens when the failure comes, so only those are replayed. It
costs a second attention cache on a spare server, the history's traffic once more, and the spare's time for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import torch

from swarmlab.bridge.inference.chain import Link, Session
from swarmlab.bridge.inference.history import SpanHistory
from swarmlab.bridge.inference.rebuild import Recovery, close_streams, place_of
from swarmlab.recovery.failure import Cause, PeerFailed
from swarmlab.recovery.routing import Need

_RETRY_S = 2.0  # between two searches for a spare


@dataclass
class Standby:
    """A second server for one span.

    :param link: its stream; the history is that of the span it stands by for
    :param fed_steps: how many steps of the log its server has seen
    :param task: what is being done for it now, or was done last; None before anything was
    """

    link: Link | None = None
    fed_steps: int = 0
    task: asyncio.Task[None] | None = None
    tried_at_s: float = 0.0

    @property
    def idle(self) -> bool:
        return self.task is None or self.task.done()


@dataclass
class StandbyCost:
    """What the standbys of a session have cost so far.

    :param tokens: batch times positions, over all standbys
    :param seconds: of their servers, as seen from here
    :param n_bytes: of requests and replies
    """

    tokens: int = 0
    seconds: float = 0.0
    n_bytes: int = 0


class Standbys:
    """The standbys of one session; each is kept with the link it stands by for.

    :param lag_tokens: positions that a standby may be behind before it is fed again; 0 switches standbys off
    """

    def __init__(self, session: Session, lag_tokens: int) -> None:
        self._session, self._lag_tokens = session, lag_tokens
        self.cost = StandbyCost()

    def follow(self, links: list[Link]) -> None:
        """After a step: find spares for live spans that have none, and feed those that lag behind."""
        if not self._lag_tokens:
            return
        for link in links:
            if link.standby is None:
                link.standby = Standby()
            standby: Standby = link.standby
            if standby.idle and link.live and self._is_due(standby):
                standby.task = asyncio.create_task(self._serve(link, standby, len(self._session.log)))

    async def take(
        self, lost: Link, n_steps: int, recovery: Recovery
    ) -> tuple[Link, torch.Tensor | None] | None:
        """The standby of a lost span, brought up to ``n_steps`` steps.

        :returns: the link that takes over, with its outputs for the steps it had not seen; None if there is no
            usable standby
        """
        standby: Standby | None = lost.standby
        lost.standby = None
        if standby is None:
            return None
        try:
            outputs = await self._catch_up(standby, lost, n_steps, recovery)
        except PeerFailed as failure:
            recovery.note(failure, 0.0)
            self._session.router.blame(failure.attempt)
            self._close(standby)
            return None
        except BaseException:
            self._close(standby)
            raise
        link = standby.link
        if not standby.idle or link is None or not link.live:
            self._close(standby)
            return None
        recovery.from_standby = True
        recovery.replacements.append(place_of(link))
        return link, outputs

    async def _catch_up(
        self, standby: Standby, lost: Link, n_steps: int, recovery: Recovery
    ) -> torch.Tensor | None:
        """Wait a little for what is being fed, and feed the rest.

        :raises PeerFailed: if the spare fails, or does not even answer a probe meanwhile
        """
        started_at_s = time.monotonic()
        try:
            if not standby.idle:
                await self._end_of_feed(standby, lost)
            link = standby.link if standby.idle else None
            if link is None or not link.live or standby.fed_steps >= n_steps:
                return None
            link.history = lost.history
            outputs = await self._session.replay(link, n_steps, standby.fed_steps)
        finally:
            recovery.replay_s += time.monotonic() - started_at_s
        recovery.requests += 1
        recovery.tokens_replayed += outputs.shape[0] * outputs.shape[1]
        return outputs

    async def _end_of_feed(self, standby: Standby, lost: Link) -> None:
        """Wait for what is being fed, but no longer than a step may take: a spare that is busy for longer may hang,
        too, and is no help then. The whole history goes to another server, if there is one.

        :raises PeerFailed: blaming the spare, if it was not done in time
        """
        assert standby.task is not None
        stream = standby.link.stream if standby.link is not None else None
        if stream is None:  # none was found yet
            return
        probe = asyncio.ensure_future(self._session.router.probe(stream.peer_id))
        try:
            await asyncio.wait({standby.task}, timeout=lost.latency.late_step_s)
            if not standby.idle:
                # a probe may take longer than there is time here: only one that has failed is held against the spare
                hangs = probe.done() and not probe.result()
                raise stream.abandon(Cause.HUNG if hangs else Cause.RESET, "is still being fed")
        finally:
            probe.cancel()

    def drop(self, links: list[Link]) -> None:
        """Let go of all standbys: what they have been fed is not the session's past any more."""
        for link in links:
            standby: Standby | None = link.standby
            link.standby = None
            if standby is not None:
                self._close(standby)

    def _is_due(self, standby: Standby) -> bool:
        if standby.link is None or not standby.link.live:
            return time.monotonic() - standby.tried_at_s >= _RETRY_S
        log, fed = self._session.log, standby.fed_steps
        return log.position - (log[fed - 1].end if fed else 0) >= self._lag_tokens

    async def _serve(self, link: Link, standby: Standby, n_steps: int) -> None:
        """Find and open a spare if there is none, and feed it the first ``n_steps`` steps."""
        try:
            if standby.link is None or not standby.link.live:
                self._close(standby)
                standby.tried_at_s, standby.fed_steps = time.monotonic(), 0
                standby.link = await self._open_spare(link)
            if standby.link is not None:
                await self._feed(link, standby, n_steps)
        except PeerFailed as failure:  # nothing is lost but the spare
            self._session.router.blame(failure.attempt)
            self._close(standby)

    async def _open_spare(self, link: Link) -> Link | None:
        session = self._session
        need = Need(session.log.position * session.batch_size, 1, session.max_length * session.batch_size)
        avoid = {link.stream.peer_id.to_base58()} if link.stream else set()
        hop = await session.router.spare(link.span, need, avoid)
        if hop is None:
            return None
        stream = await session.open(hop, None)
        return Link(
            link.span,
            SpanHistory(),
            session.router.latencies.to_begin_with(hop.peer_id, link.latency, time.monotonic()),
            stream,
        )

    async def _feed(self, link: Link, standby: Standby, n_steps: int) -> None:
        assert standby.link is not None
        assert standby.link.stream is not None
        stream, started_at_s = standby.link.stream, time.monotonic()
        sent_bytes = stream.n_bytes
        standby.link.history = link.history
        outputs = await self._session.replay(standby.link, n_steps, standby.fed_steps)
        standby.fed_steps = n_steps
        self.cost.tokens += outputs.shape[0] * outputs.shape[1]
        self.cost.seconds += time.monotonic() - started_at_s
        self.cost.n_bytes += stream.n_bytes - sent_bytes

    def _close(self, standby: Standby) -> None:
        if standby.task is not None and standby.task is not asyncio.current_task():
            standby.task.cancel()
        if standby.link is not None:
            close_streams(self._session, [standby.link])
            standby.link = None
