"""The unmodified server of petals with a switch by which it loses messages, and with each the session it belongs to.

A stage that is reset drops the session's stream and attention cache and says nothing but that the session is over; it
stays alive and takes new sessions at once. Petals' own handler does all the work; ours only stands in the way.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any, AsyncIterator  # noqa: UP035 - hivemind looks for typing's own

from hivemind.p2p import P2PContext
from hivemind.proto import runtime_pb2
from petals.server import server as petals_server
from petals.server.handler import TransformerConnectionHandler

from swarmlab.bridge import children
from swarmlab.bridge.reset_switch import REPLY, REQUEST, ResetSwitch


class StageReset(Exception):
    """Without a text, as a connection that is reset.

    :param held_bytes: attention caches of the server when it happened
    """

    def __init__(self, held_bytes: int) -> None:
        super().__init__()
        self.held_bytes = held_bytes


class ResettingHandler(TransformerConnectionHandler):
    """Petals' handler, which loses messages as its switch says."""

    def __init__(self, *args: Any, switch_path: Path, log_path: Path, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._switch = ResetSwitch(switch_path, log_path, kwargs["handler_index"])

    async def rpc_inference(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        """As petals', but a lost message ends the session."""
        try:
            session: Any = super().rpc_inference(self._received(requests), context)
            async with aclosing(session) as replies:
                async for reply in replies:
                    self._meet(REPLY, "inference")
                    yield reply
        except StageReset as reset:
            # petals has left the session by now: its cache must be free
            self._switch.log("confirm", before_bytes=reset.held_bytes, after_bytes=self._held_bytes())
            raise

    async def rpc_forward(
        self, request: runtime_pb2.ExpertRequest, context: P2PContext
    ) -> runtime_pb2.ExpertResponse:
        """As petals', but a lost message is an error; there is no session to lose."""
        self._meet_forward(REQUEST)
        reply = await super().rpc_forward(request, context)
        self._meet_forward(REPLY)
        return reply

    async def rpc_forward_stream(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        """The same for requests that are sent in parts."""
        self._meet_forward(REQUEST)
        parts = [part async for part in super().rpc_forward_stream(requests, context)]
        self._meet_forward(REPLY)
        for part in parts:
            yield part

    async def _received(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest]
    ) -> AsyncIterator[runtime_pb2.ExpertRequest]:
        async for request in requests:
            if request.tensors:  # one without is the client's goodbye
                self._meet(REQUEST, "inference")
            yield request

    def _meet(self, message: str, method: str) -> None:
        if self._switch.loses(message):
            held_bytes = self._held_bytes()
            self._switch.log("inject", message=message, method=method)
            raise StageReset(held_bytes)

    def _meet_forward(self, message: str) -> None:
        try:
            self._meet(message, "forward")
        except StageReset:
            self._switch.log("confirm", before_bytes=0, after_bytes=0)
            raise

    def _held_bytes(self) -> int:
        return next(iter(self.module_backends.values())).memory_cache.current_size_bytes


# hivemind announces a handler under the name of its class, and clients ask for petals'
ResettingHandler.__name__ = TransformerConnectionHandler.__name__


def server(args: dict[str, Any], channel: str) -> None:
    """As ``children.server``, with a switch.

    :param args: ``argv``, and ``switch_path`` and ``log_path`` as in ``ResetSwitch``
    """
    options = {name: Path(args[name]) for name in ("switch_path", "log_path")}
    entry: Any = petals_server
    entry.TransformerConnectionHandler = lambda *handler_args, **kwargs: ResettingHandler(
        *handler_args, **options, **kwargs
    )
    children.server(args, channel)
