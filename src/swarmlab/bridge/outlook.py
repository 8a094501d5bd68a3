"""What a server sees of its swarm, patiently, and whether that speaks against a move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from swarmlab.bridge.dht_port import DhtPort
from swarmlab.bridge.events import EventLog
from swarmlab.placement.objection import gain, objection
from swarmlab.placement.policy import Server
from swarmlab.types import Intent, Span, SwarmView

TRIES, RETRY_S = 3, 2.0


class Outlook:
    """
    :param prefix: under which the model's blocks are announced
    :param stopping: set when the server is to end
    """

    def __init__(
        self, port: DhtPort, prefix: str, n_blocks: int, events: EventLog, stopping: threading.Event
    ) -> None:
        self._port, self._prefix, self._n_blocks = port, prefix, n_blocks
        self._events, self._stopping = events, stopping

    def look(self) -> SwarmView:
        """:raises Exception: whatever the DHT raises"""
        return self._port.view(self._prefix, self._n_blocks)

    def look_patiently(self, tries: int = 1) -> SwarmView | None:
        """The swarm; None, and a line in the log, if it cannot be seen."""
        for left in reversed(range(tries)):
            try:
                return self.look()
            except Exception as error:  # noqa: BLE001 - a server that cannot see the swarm stays where it is
                self._events.log("warning", f"the swarm cannot be seen: {type(error).__name__}: {error}")
            if left and self._stopping.wait(RETRY_S):
                break
        return None

    def objections(
        self, itself: Server, here: Span, intent: Intent, then: SwarmView
    ) -> Callable[[Sequence[int]], str | None]:
        """A function that says whether something speaks against giving up blocks now.

        :param here: where the server would stay
        :param intent: the move
        :param then: the view on which it was decided
        """
        gain_then = gain(then, itself, here, intent.span, intent)

        def ask(leaving: Sequence[int]) -> str | None:
            view = self.look_patiently(TRIES)
            if view is None:
                return "the swarm cannot be seen"
            return objection(
                view, itself, here, intent.span, leaving=tuple(leaving), intent=intent, gain_then=gain_then
            )

        return ask
