"""Gets a lost span served again: route, connect, replay; for as long as its budget lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from swarmlab.bridge.inference.chain import Link, Session
from swarmlab.bridge.inference.history import SpanHistory
from swarmlab.bridge.inference.stream import SpanStream
from swarmlab.recovery.failure import (
    Attempt,
    Cause,
    PeerFailed,
    RecoveryFailed,
    RequestRejected,
    is_permanent,
    n_counted,
)
from swarmlab.recovery.routing import Hop, Need, NoRoute
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import Span


@dataclass
class Recovery:
    """The course of one recovery, for the record: what failed, what was tried, where the time went.

    :param cause: why the first server failed; None as long as the span is merely being opened
    :param detect_s: from requests that failed to knowing that they did; 0 if the stream was known to be broken
    """

    span: Span
    cause: str | None = None
    failed: list[dict] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    replacements: list[dict] = field(default_factory=list)
    detect_s: float = 0.0
    reroute_s: float = 0.0
    connect_s: float = 0.0
    replay_s: float = 0.0
    tokens_replayed: int = 0
    requests: int = 0
    from_standby: bool = False

    @property
    def total_s(self) -> float:
        return self.detect_s + self.reroute_s + self.connect_s + self.replay_s

    def note(self, failure: PeerFailed, detect_s: float) -> None:
        """Count a failure in; the first one turns an opening into a recovery, and only what follows it counts."""
        attempt = failure.attempt
        if self.cause is None:
            self.cause = attempt.cause.value
            self.reroute_s = self.connect_s = self.replay_s = 0.0
            self.tokens_replayed = self.requests = 0
            self.replacements, self.from_standby = [], False
        self.detect_s += detect_s
        start, _, end = attempt.span.partition(":")
        blocks = {"start": int(start), "end": int(end or int(start) + 1)}
        self.failed.append({**blocks, "peer": attempt.peer_id, "cause": attempt.cause.value})
        self.attempts.append(attempt)


class Budget:
    """Bounds what one step may spend on recoveries: seconds and attempts.

    :raises RecoveryFailed: from :meth:`spend`, when there is nothing left
    :raises RequestRejected: from :meth:`spend`, when the servers agree that the request is at fault
    """

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self.deadline_s = time.monotonic() + settings.recovery_s
        self.attempts: list[Attempt] = []

    def spend(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        tried = tuple(self.attempts)
        if is_permanent(tried):
            raise RequestRejected(f"servers refuse the request itself: {attempt.detail}")
        n_failed = n_counted(tried)
        if n_failed >= self._settings.attempts:
            raise RecoveryFailed(attempt.span, tried, f"{n_failed} attempts failed")
        if time.monotonic() > self.deadline_s:
            raise RecoveryFailed(attempt.span, tried, f"not recovered within {self._settings.recovery_s:g} s")

    def exhausted(self, span: Span, error: NoRoute, recovery: Recovery) -> RecoveryFailed:
        # each once: what this recovery met, the failure that began it included, and what others of the step met
        tried = tuple(dict.fromkeys((*self.attempts, *recovery.attempts)))
        return RecoveryFailed(str(span), tried, str(error))


async def rebuild(
    session: Session,
    lost: Link,
    n_steps: int,
    budget: Budget,
    recovery: Recovery,
    on_broken: Callable[[SpanStream], None],
) -> tuple[list[Link], torch.Tensor | None]:
    """Replace ``lost`` by live links whose servers have seen the first ``n_steps`` steps.

    Every replacement is fed the full history of exactly its own blocks: the first one has the history of the lost
    span, each further one the outputs of the one before, for all positions (Petals paper, Algorithm 1 and its
    replacement routine; petals 2.2.0 gives only the first one a history). A replacement that fails during its
    replay is replaced in turn, from its own first block on.

    :returns: the new links, and the outputs of the last one for all positions (None if there was nothing to replay)
    :raises RecoveryFailed, RequestRejected: if the budget is used up or more attempts would be no use
    """
    done: list[Link] = []
    links: list[Link] = []
    region, history = lost.span, lost.history
    outputs: torch.Tensor | None = None
    try:
        while True:
            hops = await _route(session, region, n_steps, budget, recovery)
            links = await _connect(session, hops, lost, budget, recovery, on_broken)
            for link in links:
                link.history = history
                asked_at_s = time.monotonic()
                try:
                    outputs = await _replay(session, link, n_steps, recovery)
                except PeerFailed as failure:
                    lost.latency.as_patient_as(link.latency)
                    close_streams(session, links[links.index(link) :])
                    _blame(session, failure, budget, recovery, time.monotonic() - asked_at_s)
                    break
                done.append(link)
                if link.span.end == lost.span.end:
                    return done, outputs
                region = Span(link.span.end, lost.span.end)
                history = SpanHistory() if outputs is None else SpanHistory(outputs, n_steps)
    except BaseException:
        close_streams(session, done + links)
        raise


async def _route(
    session: Session, region: Span, n_steps: int, budget: Budget, recovery: Recovery
) -> tuple[Hop, ...]:
    started_at_s = time.monotonic()
    position = session.log[n_steps - 1].end if n_steps else 0
    need = Need(
        replay_tokens=position * session.batch_size,
        future_steps=session.max_length - position,
        cache_tokens=session.max_length * session.batch_size,
    )
    try:
        return await session.router.chain(region, need, budget.deadline_s)
    except NoRoute as error:
        raise budget.exhausted(region, error, recovery) from error
    finally:
        recovery.reroute_s += time.monotonic() - started_at_s


async def _connect(
    session: Session,
    hops: tuple[Hop, ...],
    lost: Link,
    budget: Budget,
    recovery: Recovery,
    on_broken: Callable[[SpanStream], None],
) -> list[Link]:
    """Links with open streams to all ``hops``, opened at the same time; none if any peer could not be reached."""
    started_at_s = time.monotonic()
    opening = [asyncio.ensure_future(session.open(hop, on_broken)) for hop in hops]
    try:
        await asyncio.wait(opening)
    except BaseException:  # cancelled: no stream may stay open that nobody knows of
        for task in opening:
            task.cancel()
        close_streams(session, _opened(session, hops, opening, lost))
        raise
    finally:
        recovery.connect_s += time.monotonic() - started_at_s
    links = _opened(session, hops, opening, lost)
    if len(links) < len(hops):
        close_streams(session, links)
    for task in opening:
        error = task.exception()
        if isinstance(error, PeerFailed):
            _blame(session, error, budget, recovery, 0.0)
        elif error is not None:
            raise error
    return links if len(links) == len(hops) else []


def _opened(
    session: Session, hops: tuple[Hop, ...], opening: Sequence[asyncio.Future], lost: Link
) -> list[Link]:
    known, now_s = session.router.latencies, time.monotonic()
    return [
        Link(hop.span, SpanHistory(), known.to_begin_with(hop.peer_id, lost.latency, now_s), task.result())
        for hop, task in zip(hops, opening, strict=True)
        if task.done() and not task.cancelled() and task.exception() is None
    ]


async def _replay(session: Session, link: Link, n_steps: int, recovery: Recovery) -> torch.Tensor | None:
    if n_steps == 0:
        return None
    started_at_s = time.monotonic()
    assert link.stream is not None
    outputs = await session.replay(link, n_steps)
    recovery.replay_s += time.monotonic() - started_at_s
    recovery.requests += link.stream.n_requests
    recovery.tokens_replayed += outputs.shape[0] * outputs.shape[1]
    recovery.replacements.append(place_of(link))
    return outputs


def _blame(
    session: Session, failure: PeerFailed, budget: Budget, recovery: Recovery, detect_s: float
) -> None:
    recovery.note(failure, detect_s)
    session.router.blame(failure.attempt)
    try:
        budget.spend(failure.attempt)
    except RequestRejected:
        refusals = [a for a in (*budget.attempts, *recovery.attempts) if a.cause is Cause.REFUSED]
        session.router.pardon({attempt.peer_id for attempt in refusals})
        raise


def close_streams(session: Session, links: list[Link]) -> None:
    """Let go of streams without waiting; goodbyes are said in the background, for a bounded time."""
    for link in links:
        if link.stream is not None:
            keep(asyncio.ensure_future(link.stream.aclose(session.settings.close_s)))


def place_of(link: Link) -> dict:
    assert link.stream is not None
    return {"start": link.span.start, "end": link.span.end, "peer": link.stream.peer_id.to_base58()}


_background: set[asyncio.Future] = set()


def keep(task: asyncio.Future) -> None:
    """Hold a reference to a task nobody awaits until it is done, lest it be collected half-way."""
    _background.add(task)
    task.add_done_callback(_background.discard)
