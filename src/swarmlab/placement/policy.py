"""What every placement policy offers to a simulated or a real swarm."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.types import MAX_THROUGHPUT_TPS, Decision, ServerRecord, Span, SwarmView

MAX_BACKOFF = 16  # check periods that a server waits at most after moves that were not made

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory


@dataclass(frozen=True)
class Server:
    """The server that decides, as it knows itself: its own records in a view may be old, cut or missing.

    :param n_blocks: how many blocks it holds when it serves
    :param throughput_tps: what it announces, tokens/s through each of its blocks
    :param span: what it serves; None while it joins
    :raises BadInput: for a server that cannot exist
    """

    peer_id: str
    n_blocks: int
    throughput_tps: float
    span: Span | None = None
    load: LoadCost = field(default_factory=LoadCost)

    def __post_init__(self) -> None:
        if self.n_blocks < 1:
            raise BadInput("server.n_blocks", self.n_blocks, "at least 1")
        if not math.isfinite(self.throughput_tps) or not 0 <= self.throughput_tps <= MAX_THROUGHPUT_TPS:
            raise BadInput(
                "server.throughput_tps", self.throughput_tps, f"0 to {MAX_THROUGHPUT_TPS:g} tokens/s"
            )


class Policy(Protocol):
    """Decides for one server at a time, from what that server sees; holds settings only, no state.

    A server checks after a time drawn evenly from 0 to twice ``mean_check_period_s``, unless its last decision
    names one, and waits a time drawn evenly from 0 to twice ``mean_choice_delay_s`` before it chooses.
    """

    @property
    def name(self) -> str: ...

    @property
    def mean_check_period_s(self) -> float: ...

    @property
    def mean_choice_delay_s(self) -> float: ...

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        """Where a joining server should go."""
        ...

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        """Whether a serving server should move; ``memory`` is what its last decision carried, or None."""
        ...


@runtime_checkable
class Asking(Policy, Protocol):
    """A policy that wants servers in doubt asked themselves before a check, and a look between checks.

    Whoever asks hands the answers over in ``Memory.testimony``.
    """

    @property
    def watch_s(self) -> float: ...

    def whom_to_ask(self, view: SwarmView, server: Server, memory: Memory | None) -> tuple[ServerRecord, ...]:
        """Whom to ask before :meth:`reconsider` with the same arguments."""
        ...

    def must_check(self, view: SwarmView, server: Server, memory: Memory | None) -> bool:
        """Whether what was seen between two checks asks for one at once."""
        ...


def wait_after_setbacks_s(mean_check_period_s: float, setbacks: int) -> float:
    """How long a server waits, and looks at nothing, after so many moves in a row that were not made (1 or more)."""
    return mean_check_period_s * min(2**setbacks, MAX_BACKOFF)


def held_in(view: SwarmView, server: Server) -> Span:
    """The span of a serving server.

    :raises BadInput: if it holds no span of this model
    """
    if server.span is None or server.span.end > view.n_blocks:
        raise BadInput(
            "server.span", str(server.span), f"what the server holds of the {view.n_blocks} blocks"
        )
    return server.span


def width_in(view: SwarmView, server: Server) -> int:
    """Blocks the server holds, at most the whole model."""
    return min(server.n_blocks, view.n_blocks)


def stay(
    server: Server, present_tps: float, policy: str, reason: str, memory: Memory | None = None
) -> Decision:
    """The decision to keep the span; a server without one has no business here."""
    if server.span is None:
        raise BadInput("server.span", None, "the span that a serving server holds")
    return Decision(
        moved=False,
        old=server.span,
        target=server.span,
        predicted_tps=present_tps,
        expected_stay_tps=present_tps,
        policy=policy,
        reason=reason,
        memory=memory,
    )
