"""A time in which a session of a simulated client could not go on, for its row in the history."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swarmlab.sim.world import TIME_DIGITS

if TYPE_CHECKING:
    from swarmlab.recovery.failure import Cause
    from swarmlab.recovery.routing import Hop

# What it waited for: until it noticed, until it knew a server for each block, for connections, for the history.
PARTS = ("detect_s", "reroute_s", "connect_s", "replay_s")


@dataclass
class Stall:
    """
    :param waited_s: seconds by what it waited for
    :param requests: connections that were tried
    :param failed: hops that were lost or could not be used; ``taken`` those that took over
    :param waits: what it waits for now, and since when
    """

    began_s: float
    waited_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    waits: tuple[str, float] | None = None

    @property
    def in_trouble(self) -> bool:
        """Whether it took more than to connect to the first servers chosen, and to feed them."""
        return bool(self.failed) or self.waited_s["reroute_s"] > 0

    def fail(self, hop: Hop, cause: Cause) -> None:
        self.failed.append({**_where(hop), "cause": str(cause)})

    def take(self, hop: Hop) -> None:
        self.taken.append(_where(hop))

    def cut_off(self, now_s: float) -> None:
        """It goes on, but nobody will see its end: what it waits for counts up to now."""
        if self.waits is not None:
            what, since_s = self.waits
            self.waited_s[what] += now_s - since_s
            self.waits = None

    def row(self, now_s: float) -> dict[str, Any]:
        """Columns of ``failovers``, as of a real session."""
        return {
            "cause": self.failed[0]["cause"] if self.failed else None,
            **{name: round(self.waited_s[name], TIME_DIGITS) for name in PARTS},
            "total_s": round(now_s - self.began_s, TIME_DIGITS),
            "requests": self.requests,
            "failed": self.failed,
            "spans": self.taken,
        }


def _where(hop: Hop) -> dict[str, Any]:
    return {"peer": hop.peer_id, "start": hop.span.start, "end": hop.span.end}
