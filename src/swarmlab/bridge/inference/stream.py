"""One open inference stream to one server, with an end that is noticed at once.

hivemind's own reader swallows the end of a stream, so petals learns of a server that dies while it works only
after ``request_timeout`` (3 minutes). Here the frames are read by a task of our own: an end of stream fails
the pending request, and every later one, immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from hivemind.p2p import P2P, PeerID
from hivemind.proto import runtime_pb2
from petals.server.handler import TransformerConnectionHandler

from swarmlab.recovery.failure import Cause, PeerFailed, cause_of, cause_of_dial
from swarmlab.types import Span

_HANDLER = "rpc_inference"
_ASK_AGAIN_S = 0.25
TICK_S = 1e-6  # two moments this near are one: a wait for what rounding leaves may end before it is over


class SpanStream:
    """A request-reply channel to ``peer_id`` for the blocks of ``span``. Lives on one event loop.

    :param on_broken: called on the loop once, when the stream ends without our doing
    """

    def __init__(
        self,
        peer_id: PeerID,
        span: Span,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_broken: Callable[[SpanStream], None] | None = None,
    ) -> None:
        self.peer_id, self.span = peer_id, span
        self.opened_at_s = self.used_at_s = time.monotonic()
        self.n_requests = self.n_bytes = 0  # bytes of requests and replies
        self._writer = writer
        self._replies: asyncio.Queue[runtime_pb2.ExpertResponse | None] = asyncio.Queue()
        self._failure: PeerFailed | None = None
        self._closing = False
        self.on_broken = on_broken
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(
        cls,
        p2p: P2P,
        peer_id: PeerID,
        span: Span,
        *,
        patience_s: Callable[[float], float],
        on_broken: Callable[[SpanStream], None] | None = None,
    ) -> SpanStream:
        """Open a stream; nothing is sent yet, so the server allocates nothing.

        :param patience_s: how long it may take in all; given how long it has taken, it is asked now and then again
        :raises PeerFailed: blaming this peer, if that takes longer than ``patience_s`` or is refused
        """
        name = TransformerConnectionHandler._get_handle_name(None, _HANDLER)
        began_s = time.monotonic()
        opening = asyncio.ensure_future(p2p.call_binary_stream_handler(peer_id, name))
        try:
            await _wait_for(opening, began_s, patience_s)
            _, reader, writer = opening.result()
        except asyncio.CancelledError:
            _close_when_open(opening)
            raise
        except Exception as error:
            _close_when_open(opening)
            text = str(error) or repr(error)
            raise PeerFailed(peer_id.to_base58(), str(span), cause_of_dial(text), text, began_s) from error
        return cls(peer_id, span, reader, writer, on_broken)

    @property
    def failure(self) -> PeerFailed | None:
        """Why the stream is unusable; None while it is usable."""
        return self._failure

    async def exchange(self, request: runtime_pb2.ExpertRequest) -> runtime_pb2.ExpertResponse:
        """Send one request and wait for its reply, without a time limit: the caller watches the clock.

        :raises PeerFailed: as soon as the stream ends or the server answers with an error
        """
        await self.send(request)
        return await self.receive()

    async def send(self, request: runtime_pb2.ExpertRequest) -> None:
        """Send one request; replies come back in the same order.

        :raises PeerFailed: if the stream is broken
        """
        if self._failure is not None:
            raise self._failure
        self.n_requests += 1
        self.n_bytes += request.ByteSize()
        try:
            await P2P.send_protobuf(request, self._writer)
        except (ConnectionError, RuntimeError, OSError) as error:
            self._break(Cause.BROKEN, f"cannot send: {error!r}")
            raise self._failure or error from error

    async def receive(self) -> runtime_pb2.ExpertResponse:
        """The reply to the oldest request not answered yet.

        :raises PeerFailed: if the stream is broken
        """
        if self._replies.empty() and self._failure is not None:
            raise self._failure
        reply = await self._replies.get()
        if reply is None:
            self._replies.put_nowait(None)  # wake whoever else waits
            assert self._failure is not None
            raise self._failure
        self.used_at_s = time.monotonic()
        self.n_bytes += reply.ByteSize()
        return reply

    def abandon(self, cause: Cause, detail: str) -> PeerFailed:
        """Declare the stream unusable (its server hangs); later replies are never read."""
        self._break(cause, detail)
        assert self._failure is not None
        return self._failure

    async def aclose(self, timeout_s: float) -> None:
        """Say goodbye if the server still listens, and let go after ``timeout_s`` in any case."""
        if self._closing:
            return
        self._closing = True
        try:
            if self._failure is None and self.n_requests:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(timeout_s):
                        # a request without tensors ends the session on the server and frees its cache
                        await P2P.send_protobuf(runtime_pb2.ExpertRequest(), self._writer)
                        await asyncio.wait({self._reading})
        finally:  # also when the goodbye is cancelled
            self._break(Cause.BROKEN, "closed by this client")
            self._let_go()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                reply, error = await P2P.receive_protobuf(runtime_pb2.ExpertResponse, reader)
                if error is not None:
                    self._break(*_meaning(error.message))
                    return
                assert reply is not None
                self._replies.put_nowait(reply)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - IncompleteReadError: the stream ended; others: garbled
            self._break(Cause.BROKEN, f"the stream ended: {error!r}")

    def _break(self, cause: Cause, detail: str) -> None:
        if self._failure is not None:
            return
        self._failure = PeerFailed(self.peer_id.to_base58(), str(self.span), cause, detail, self.opened_at_s)
        self._replies.put_nowait(None)
        if not self._closing:
            self._let_go()
            if self.on_broken is not None:
                self.on_broken(self)

    def _let_go(self) -> None:
        if asyncio.current_task() is not self._reading:
            self._reading.cancel()
        # not close(): that would first wait for the peer to read what is left, and a hung peer never does
        self._writer.transport.abort()


def _meaning(message: str) -> tuple[Cause, str]:
    """A session that ends with an error without a text (as petals' time limits do) is no refusal, and no death."""
    return (cause_of(message), message) if message else (Cause.RESET, "ended by the server without a reason")


async def _wait_for(opening: asyncio.Future, began_s: float, patience_s: Callable[[float], float]) -> None:
    """
    :raises TimeoutError: when it has taken longer than ``patience_s`` allows then
    """
    while not opening.done():
        waited_s = time.monotonic() - began_s
        left_s = patience_s(waited_s) - waited_s
        if left_s <= TICK_S:
            raise TimeoutError(f"no connection within {waited_s:.1f} s")
        await asyncio.wait({opening}, timeout=min(left_s, _ASK_AGAIN_S))


_late: set[asyncio.Future] = set()


def _close_when_open(opening: asyncio.Future) -> None:
    """Nobody waits for this stream any more; if the daemon opens it after all, let go of it at once."""
    _late.add(opening)
    opening.add_done_callback(_close)


def _close(opening: asyncio.Future) -> None:
    _late.discard(opening)
    if not opening.cancelled() and opening.exception() is None:
        _, _, writer = opening.result()
        writer.close()
