"""Values that policies, the simulator and the real swarm share. Frozen, no I/O; units are in the names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any

# A record may announce any number; nothing real passes 1e9 tokens/s through a block (rebalancing cause R18).
MAX_THROUGHPUT_TPS = 1e9


class ServerState(StrEnum):
    """What a server says of itself. JOINING servers are loading: they count for placement, never for routing."""

    OFFLINE = "offline"
    JOINING = "joining"
    ONLINE = "online"


@dataclass(frozen=True, order=True)
class Span:
    """Consecutive blocks ``[start, end)``."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a span needs 0 <= start < end, got [{self.start}, {self.end})")

    @property
    def length(self) -> int:
        return self.end - self.start

    def __contains__(self, block: int) -> bool:
        return self.start <= block < self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))

    def covers(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end

    def overlap(self, other: Span) -> int:
        """Number of blocks in both spans."""
        return max(0, min(self.end, other.end) - max(self.start, other.start))

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"


@dataclass(frozen=True)
class Intent:
    """A move that a server announces while it still serves its present span.

    :param span: the span it wants to hold next
    :param announced_at_s: when it was announced, on the DHT's clock; of two rival intents the earlier one goes
    """

    span: Span
    announced_at_s: float


@dataclass(frozen=True)
class ServerRecord:
    """One server as the swarm's DHT shows it.

    :param peer_id: who it is (base58 in a real swarm, any string in a simulated one)
    :param span: the blocks it holds or is loading
    :param throughput_tps: announced tokens/s through each of its blocks, bounded to ``[0, MAX_THROUGHPUT_TPS]``
    :param inference_tps: announced tokens/s through *one* block for single-token steps; None if unknown
    :param cache_tokens_left: free attention cache, in tokens times blocks; None if unknown
    :param expires_at_s: when the record lapses, on the DHT's clock; a later value is a newer record
    :param next_pings_s: round trips the server measured to likely next servers, by peer id
    :param intent: the move it has announced and not yet begun; None for servers that announce none
    :param movable: False for one whose blocks are fixed, or that follows another plan than ours
    """

    peer_id: str
    span: Span
    throughput_tps: float
    state: ServerState = ServerState.ONLINE
    inference_tps: float | None = None
    cache_tokens_left: int | None = None
    expires_at_s: float = math.inf
    next_pings_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    intent: Intent | None = None
    movable: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.throughput_tps) or not 0 <= self.throughput_tps <= MAX_THROUGHPUT_TPS:
            raise ValueError(
                f"{self.peer_id} announces {self.throughput_tps}, outside [0, {MAX_THROUGHPUT_TPS:g}]"
            )

    @property
    def key(self) -> str:
        """Server and span in one text, built once: views of thousands of servers are compared by it."""
        known = self.__dict__.get("_key")
        if known is None:
            known = f"{self.peer_id} {self.span.start}:{self.span.end}"
            object.__setattr__(self, "_key", known)
        return known

    def renewed(self, expires_at_s: float) -> ServerRecord:
        """The same record with a later end, many times faster than ``dataclasses.replace``."""
        later = object.__new__(ServerRecord)
        later.__dict__.update(self.__dict__)
        later.__dict__["expires_at_s"] = expires_at_s
        return later


@dataclass(frozen=True)
class SwarmView:
    """Who holds what, as one reader saw it at one moment. At most one record per peer, sorted by peer id.

    :param n_blocks: blocks in the model
    :param seen_at_s: when it was read, on the reader's clock
    """

    n_blocks: int
    servers: tuple[ServerRecord, ...]
    seen_at_s: float = 0.0

    def __post_init__(self) -> None:
        if len({record.peer_id for record in self.servers}) != len(self.servers):
            raise ValueError("a view holds at most one record per peer")
        if self.servers and max([record.span.end for record in self.servers]) > self.n_blocks:
            raise ValueError(f"a record names a block outside [0, {self.n_blocks})")
        object.__setattr__(self, "servers", tuple(sorted(self.servers, key=attrgetter("peer_id"))))

    @classmethod
    def in_order(cls, n_blocks: int, servers: tuple[ServerRecord, ...], seen_at_s: float) -> SwarmView:
        """A view of records that are known to be in order, one per peer, within the blocks: nothing is checked."""
        view = object.__new__(cls)
        view.__dict__.update(n_blocks=n_blocks, servers=servers, seen_at_s=seen_at_s)
        return view

    def get(self, peer_id: str) -> ServerRecord | None:
        return next((record for record in self.servers if record.peer_id == peer_id), None)

    def without(self, peers: Iterable[str]) -> SwarmView:
        """The same view with some peers left out; the view itself if it shows none of them."""
        dropped = set(peers)
        known = self.__dict__.get("_peers")
        if known is None:
            known = frozenset(record.peer_id for record in self.servers)
            object.__setattr__(self, "_peers", known)
        if known.isdisjoint(dropped):
            return self
        kept = tuple([record for record in self.servers if record.peer_id not in dropped])
        return SwarmView.in_order(self.n_blocks, kept, self.seen_at_s)

    def serving(self) -> tuple[ServerRecord, ...]:
        return tuple(record for record in self.servers if record.state is ServerState.ONLINE)

    def uncovered(self, *, serving_only: bool = True) -> tuple[int, ...]:
        """Blocks that nobody serves (or, with ``serving_only=False``, that nobody serves or loads)."""
        wanted = {ServerState.ONLINE} if serving_only else {ServerState.ONLINE, ServerState.JOINING}
        held = {block for record in self.servers if record.state in wanted for block in record.span}
        return tuple(block for block in range(self.n_blocks) if block not in held)


@dataclass(frozen=True)
class Decision:
    """What a placement policy wants one server to do, and why.

    :param moved: True if the server should change its span; a target equal to the old span is never a move
    :param old: the span it has now; None for a joining server
    :param target: the span it should hold
    :param predicted_tps: the swarm throughput the policy expects after the decision
    :param expected_stay_tps: the swarm throughput it expects if the server stays
    :param keeps_target: False if the server is to unload first and choose again on a fresh view, as Petals does
    :param intent: what the server should announce while it goes on serving; None withdraws an earlier intent. With
        ``moved``: the move was not announced before; it is now, the server may load for it, and it gives up nothing
        before it has found its announcement in the swarm and looked again whether anything speaks against the move
    :param check_again_s: seconds until the policy wants to look again; None at the usual period. With ``moved`` and an
        intent: how long to look for the announcement at most
    :param memory: what to hand to the policy at its next check (a ``swarmlab.placement.memory.Memory``)
    """

    moved: bool
    old: Span | None
    target: Span
    predicted_tps: float
    expected_stay_tps: float
    policy: str
    reason: str
    keeps_target: bool = True
    intent: Intent | None = None
    check_again_s: float | None = None
    memory: Any = None


@dataclass(frozen=True)
class Event:
    """One row of a history: ``t_s`` is monotonic seconds since the start of the run."""

    t_s: float
    kind: str
    arm: str
    fields: Mapping[str, Any]
