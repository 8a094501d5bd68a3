"""A policy that does what a file says: for tests, and for an operator who wants a server somewhere else.

No petals here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swarmlab.placement.policy import stay, width_in
from swarmlab.types import Decision, Span

if TYPE_CHECKING:
    from swarmlab.placement.layout import Rng
    from swarmlab.placement.memory import Memory
    from swarmlab.placement.policy import Server
    from swarmlab.types import SwarmView

NAME = "told"


@dataclass(frozen=True)
class Told:
    """Goes where ``path`` says, ``start:end`` in one line, as often as it is not there.

    What cannot be (another width than the server's, blocks that the model does not have, half a line) moves nobody.

    :param path: may be replaced at any time; without it the server joins at block 0 and stays
    """

    path: str
    mean_check_period_s: float = 1.0
    mean_choice_delay_s: float = 0.0
    name: str = NAME

    def choose(self, view: SwarmView, server: Server, rng: Rng) -> Decision:
        del rng
        width = width_in(view, server)
        target = self._told(width, view.n_blocks) or Span(0, width)
        return Decision(True, None, target, 0.0, 0.0, self.name, "as told")

    def reconsider(self, view: SwarmView, server: Server, memory: Memory | None, rng: Rng) -> Decision:
        del rng
        at_rest = stay(server, 0.0, self.name, "as told", memory)
        target = self._told(server.n_blocks if server.span is None else server.span.length, view.n_blocks)
        if target is None or target == server.span:
            return at_rest
        return Decision(True, server.span, target, 0.0, 0.0, self.name, "as told", memory=memory)

    def _told(self, width: int, n_blocks: int) -> Span | None:
        try:
            start, end = Path(self.path).read_text(encoding="utf-8").strip().split(":")
            target = Span(int(start), int(end))
        except (OSError, ValueError):
            return None
        return target if target.length == width and target.end <= n_blocks else None
