"""What servers say when they are asked themselves, past the DHT: their records may lapse while they serve on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Answer(StrEnum):
    """What came back from one server.

    SERVES: it is there and holds the blocks that it was believed to hold. LEFT: it is there and does not. REFUSED:
    its machine says, each time, that nobody listens where it was. SILENT: none of these; it may hang, be overloaded,
    or be cut off.
    """

    SERVES = "serves"
    LEFT = "left"
    REFUSED = "refused"
    SILENT = "silent"


@dataclass(frozen=True)
class Answers:
    """What was heard at one time, by peer id."""

    by_peer: Mapping[str, Answer]

    @property
    def cut_off(self) -> bool:
        """Nobody of several is there: then it is the server that asked which nobody can reach."""
        return len(self.by_peer) > 1 and not any(
            answer in (Answer.SERVES, Answer.LEFT) for answer in self.by_peer.values()
        )
