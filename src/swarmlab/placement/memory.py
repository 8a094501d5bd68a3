"""What a server remembers between two checks. A value: policies return a new one, they never change one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmlab.placement.testimony import Answers
    from swarmlab.types import Intent, ServerRecord, Span, SwarmView


@dataclass(frozen=True)
class Vanished:
    """A server's last complete record, and when it was first missing (s, clock of the views).

    :param answered_s: when it last said itself that it still serves; None if it never did
    """

    record: ServerRecord
    missing_since_s: float
    answered_s: float | None = None


@dataclass(frozen=True)
class Gone:
    """A server that is known not to serve, and which of its records must not be believed: this one and older ones."""

    peer_id: str
    expires_at_s: float


@dataclass(frozen=True)
class Wish:
    """A move that the server would make, and since when it wants it (s, clock of the views)."""

    target: Span
    since_s: float
    intent: Intent | None = None


@dataclass(frozen=True)
class Departure:
    """A span that the server left, and when it arrived at the next one (s, clock of the views)."""

    span: Span
    at_s: float


@dataclass(frozen=True)
class Memory:
    """Each policy uses the part it needs.

    :param confirmations: how often in a row the check has said "move" (recheck)
    :param last_view: what was read at the last check, for finding out who vanished since
    :param vanished: servers that are missing but not yet believed gone
    :param wish: the move under consideration
    :param departures: the last moves, oldest first
    :param news_s: how long the last announced move took to be found in the swarm by its own server
    :param gone: servers that are shown although they do not serve any more
    :param testimony: what servers in doubt said since the last check; the next check takes it in
    :param gap_since_s: since when blocks would have nobody even with all announced moves made (s, clock of the views)
    """

    confirmations: int = 0
    last_view: SwarmView | None = field(default=None, repr=False)
    vanished: tuple[Vanished, ...] = ()
    wish: Wish | None = None
    departures: tuple[Departure, ...] = ()
    news_s: float = 0.0
    gone: tuple[Gone, ...] = ()
    testimony: Answers | None = None
    gap_since_s: float | None = None
