"""What a failure means: who is to blame, and whether another server could do better."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """Why a span could not go on at its server."""

    BROKEN = "broken"  # the stream ended: the server or the way to it is gone
    RESET = "reset"  # the session there is over, for no fault of the request's, but the server is alive
    UNREACHABLE = "unreachable"  # no stream could be opened
    HUNG = "hung"  # no reply in time, and no answer to a probe
    STUCK = "stuck"  # answers probes but not the request
    BACKOFF = (
        "backoff"  # our own libp2p refuses to dial it so soon after a dial that failed (up to about 8 s)
    )
    BUSY = "busy"  # has no free attention cache now
    STALE = "stale"  # does not serve the blocks that its record names
    UNABLE = "unable"  # its limits are below what the session needs
    RENEWED = "renewed"  # reopened before the server's own time limits would end the session
    REFUSED = "refused"  # answered with an error of its own


# Texts of petals 2.2.0's server errors, and of our server's; an unknown text means REFUSED.
_TEXTS = (
    (re.compile(r"cannot allocate KV cache", re.IGNORECASE), Cause.UNABLE),
    (
        re.compile(r"maximum length exceeded|greater than max_batch_size|max cache size", re.IGNORECASE),
        Cause.UNABLE,
    ),
    (re.compile(r"adapter .* not found", re.IGNORECASE), Cause.UNABLE),
    (re.compile(r"could not allocate|attention cache is full|out of memory", re.IGNORECASE), Cause.BUSY),
    (
        re.compile(r"does not serve|protocol not supported|protocols? not supported", re.IGNORECASE),
        Cause.STALE,
    ),
    (re.compile(r"loaded again since the session began"), Cause.RESET),
)


# Causes that pass by themselves: they say nothing against the server and do not count as failed attempts.
PASSING = (Cause.BACKOFF, Cause.BUSY, Cause.RENEWED)
# It does not answer at all, which is no wonder where many have died at once: another may.
SILENT = (Cause.BROKEN, Cause.UNREACHABLE, Cause.HUNG)
# What one session finds out about a server that concerns every other session of the same client, too. Not BUSY: a
# smaller session may still have room.
OF_THE_SERVER = (Cause.BROKEN, Cause.UNREACHABLE, Cause.HUNG, Cause.STUCK, Cause.BACKOFF, Cause.STALE)


def cause_of_dial(message: str) -> Cause:
    """Classify the error text of a stream that could not be opened."""
    if cause_of(message) is Cause.STALE:
        return Cause.STALE
    # libp2p lists the error of each address it tried: in backoff, none was really dialled
    tried = re.findall(r"^\s*\* \[.*?\] (.*)$", message, re.MULTILINE)
    return Cause.BACKOFF if tried and all("dial backoff" in one for one in tried) else Cause.UNREACHABLE


def cause_of(message: str) -> Cause:
    """Classify the error text that a server sent back."""
    return next((cause for pattern, cause in _TEXTS if pattern.search(message)), Cause.REFUSED)


@dataclass(frozen=True)
class Attempt:
    """One try to get blocks served, for the record and for the final error.

    :param began_s: when its stream was opened, or was to be (monotonic); infinite if that does not matter
    """

    peer_id: str
    span: str
    cause: Cause
    detail: str
    began_s: float = field(default=math.inf, compare=False)

    def __str__(self) -> str:
        return f"{self.span} at ...{self.peer_id[-6:]}: {self.cause.value} ({self.detail})"


def n_counted(attempts: Sequence[Attempt]) -> int:
    """How many of these are failures that a step may have only so many of.

    However many servers died at once, each may be found silent once: that must not cost the step those that are alive.
    """
    failed = [one for one in attempts if one.cause not in PASSING]
    silent = {one.peer_id for one in failed if one.cause in SILENT}
    return len(failed) - len(silent)


class PeerFailed(RuntimeError):
    """One server failed one request; the session can look for another."""

    def __init__(self, peer_id: str, span: str, cause: Cause, detail: str, began_s: float = math.inf) -> None:
        super().__init__(f"blocks {span} at ...{peer_id[-6:]}: {cause.value}: {detail}")
        self.attempt = Attempt(peer_id, span, cause, detail, began_s)


class RecoveryFailed(RuntimeError):
    """A step could not be completed; the session is as it was before the step and can go on later.

    :param blocks: the blocks that could not be served, as text
    :param attempts: everything that was tried, in order
    """

    def __init__(self, blocks: str, attempts: tuple[Attempt, ...], why: str) -> None:
        tried = "; ".join(map(str, attempts[-8:])) or "nobody"
        # that no server is able to is the reason; that none is left is what follows from it
        unable = next((attempt.detail for attempt in attempts if attempt.cause is Cause.UNABLE), None)
        reason = f"{unable} ({why})" if unable else why
        super().__init__(f"blocks {blocks} cannot be served: {reason}. Tried: {tried}")
        self.blocks, self.attempts = blocks, attempts


class RequestRejected(ValueError):
    """Every server that was asked refused the request itself; trying further ones would be no use."""


class HistoryTooLarge(RuntimeError):
    """A step would need more memory for recovery than it may; nothing was sent, the session is as it was.

    :param needed_bytes: what all histories of the session would take after the step
    """

    def __init__(self, needed_bytes: int, limit_bytes: int, n_spans: int, n_rows: int, position: int) -> None:
        what = f"{n_spans} spans, {n_rows} rows, {position} positions"
        super().__init__(
            f"the session's histories would take {needed_bytes} bytes ({what}), more than "
            f"recovery.history_max_bytes={limit_bytes}: raise it, or generate fewer rows or tokens"
        )
        self.needed_bytes = needed_bytes


def is_permanent(attempts: tuple[Attempt, ...]) -> bool:
    """Whether the request rather than a server is at fault: two different servers refused it in the same words."""
    refused = [(a.peer_id, a.detail) for a in attempts if a.cause is Cause.REFUSED]
    return any(a[1] == b[1] and a[0] != b[0] for a in refused for b in refused)
