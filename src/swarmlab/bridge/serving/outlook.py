"""What a server sees of its swarm, patiently, and whether that speaks against a move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from swarmlab.bridge.events import EventLog
from swarmlab.bridge.serving import first_look
from swarmlab.bridge.serving.dht_port import DhtPort
from swarmlab.placement.grace import without_gone
from swarmlab.placement.memory import Memory
from swarmlab.placement.objection import gain, objection
from swarmlab.placement.policy import Asking, Policy, Server
from swarmlab.types import Decision, Intent, Span, SwarmView

TRIES, RETRY_S = 3, 2.0
POLL_S = 0.5  # between two looks for one's own announcement


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

    def look_to_join(self) -> SwarmView:
        """The swarm as it can be believed by a server that knows nothing of it yet.

        :raises ConnectionError: if it cannot be seen
        """
        looks: list[SwarmView | None] = []
        while not first_look.is_settled(looks) and len(looks) < first_look.MOST_LOOKS:
            if looks and self._stopping.wait(first_look.wait_s(len(looks))):
                break
            looks.append(view := self.look_patiently())
            if view is not None:
                missing = view.uncovered(serving_only=False)
                line = f"look {len(looks)} before joining: {len(view.servers)} servers"
                self._events.log("info", line, blocks_of_nobody=missing)
        chosen = first_look.believed(looks)
        if chosen is None:
            raise ConnectionError(f"the swarm was not seen in {len(looks)} looks: nothing to join")
        return chosen

    def ask(self, policy: Policy, view: SwarmView, itself: Server, memory: Memory | None) -> Memory | None:
        """The memory, with what servers in doubt say themselves if the policy wants to know that."""
        doubtful = policy.whom_to_ask(view, itself, memory) if isinstance(policy, Asking) else ()
        if not doubtful:
            return memory
        try:
            testimony = self._port.ask(doubtful, self._prefix)
        except Exception as error:  # noqa: BLE001 - then they are believed for the grace time
            self._events.log("warning", f"nobody could be asked: {type(error).__name__}: {error}")
            return memory
        told = {peer: answer.value for peer, answer in testimony.by_peer.items()}
        self._events.log("info", "servers in doubt were asked", answers=told, cut_off=testimony.cut_off)
        return replace(memory or Memory(), testimony=testimony)

    def must_check(self, policy: Policy, itself: Server, memory: Memory | None) -> bool:
        """Whether the policy, seeing the swarm now, wants to check before it is time."""
        if not isinstance(policy, Asking):
            return False
        view = self.look_patiently()
        return view is not None and policy.must_check(view, itself, memory)

    def objections(
        self, itself: Server, here: Span, decision: Decision, intent: Intent, then: SwarmView
    ) -> Callable[[Sequence[int]], str | None]:
        """A function that says whether something speaks against giving up blocks now.

        :param here: where the server would stay
        :param intent: the move
        :param then: the view on which it was decided
        """
        known = decision.memory if isinstance(decision.memory, Memory) else Memory()
        gain_then = gain(without_gone(then, known), itself, here, intent.span, intent)
        seen = decision.intent is None  # a move that was announced before was seen before it was decided
        until_s = intent.announced_at_s + (decision.check_again_s or 0.0)

        def ask(leaving: Sequence[int]) -> str | None:
            nonlocal seen
            view = self.look_patiently(TRIES)
            while view is not None and not seen and view.seen_at_s < until_s:
                own = view.get(itself.peer_id)
                seen = own is not None and own.intent == intent
                if not seen:
                    if self._stopping.wait(POLL_S):
                        return "the server is to end"
                    view = self.look_patiently(TRIES)
            if view is None:
                return "the swarm cannot be seen"
            return objection(
                without_gone(view, known),
                itself,
                here,
                intent.span,
                leaving=tuple(leaving),
                intent=intent,
                gain_then=gain_then,
            )

        return ask
