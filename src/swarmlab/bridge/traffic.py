"""Stands in front of petals' handlers, in every kind of server: counts what they deliver, and slows their link down.

Requests are held back on their way in, replies and pushes on their way out, as long as a link of the given rate and
delay would take. The DHT and pings between peers are not. What petals' handlers do is not touched.
"""

from __future__ import annotations

import functools
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from petals.data_structures import CHAIN_DELIMITER, UID_DELIMITER
from petals.server.handler import TransformerConnectionHandler

from swarmlab.bridge.events import EventLog
from swarmlab.bridge.link import Carried, Link, Pace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

UNARY = ("rpc_forward", "rpc_backward", "rpc_push", "rpc_info")
STREAMS = ("rpc_inference", "rpc_forward_stream", "rpc_backward_stream")
FLUSH_S = 1.0


class Meter:
    """Tokens that have passed through blocks: a row of kind ``delivered`` a second, and one at the end of a stream.

    :param server: its name
    """

    def __init__(self, events: EventLog, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._events, self._server, self._clock = events, server, clock
        self._tokens: dict[tuple[int, int], int] = {}
        self._flushed_at_s = clock()

    def count(self, uids: str, reply: Any) -> None:
        """
        :param uids: of the blocks that were asked
        :param reply: with a tensor of shape [batch, tokens, hidden] if anything was computed; further parts of a
            tensor that was cut into several have no shape
        """
        span = span_of(uids)
        sizes = [tensor.size for tensor in getattr(reply, "tensors", ()) if len(tensor.size) == 3]
        if span is None or not sizes:
            return
        self._tokens[span] = self._tokens.get(span, 0) + sizes[0][0] * sizes[0][1]
        if self._clock() - self._flushed_at_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write down what has been counted since the last time."""
        now_s, tokens = self._clock(), self._tokens
        seconds, self._flushed_at_s, self._tokens = now_s - self._flushed_at_s, now_s, {}
        for (start, end), count in tokens.items():
            row = {"start": start, "end": end, "tokens": count, "seconds": round(seconds, 6)}
            self._events.emit("delivered", server=self._server, **row)


def span_of(uids: str) -> tuple[int, int] | None:
    """First block and the one after the last, of uids as petals chains them; None if these are none."""
    numbers = [uid.rpartition(UID_DELIMITER)[2] for uid in uids.split(CHAIN_DELIMITER)]
    return (int(numbers[0]), int(numbers[-1]) + 1) if all(map(str.isdigit, numbers)) else None


class Traffic:
    """What one server's handlers pass their messages through.

    :param pace: of its link, in each direction; None: nothing is held back
    """

    def __init__(self, meter: Meter, pace: Pace | None) -> None:
        self.meter = meter
        self._link_in = Link(pace) if pace else None
        # a push is delayed where it is received; sending it only takes its share of the link
        self._link_out = Link(pace) if pace else None

    async def receive(self, message: Any) -> None:
        if self._link_in is not None:
            await self._link_in.carry(message.ByteSize())

    async def send(self, message: Any) -> None:
        if self._link_out is not None:
            await self._link_out.carry(message.ByteSize())

    def occupy(self, n_bytes: int) -> None:
        """Take a push's share of the link out."""
        if self._link_out is not None:
            self._link_out.arrival_s(n_bytes)

    @asynccontextmanager
    async def received(self, messages: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
        if self._link_in is None:
            yield messages
        else:
            async with aclosing(Carried(self._link_in, messages)) as carried:
                yield carried

    @asynccontextmanager
    async def sent(self, messages: AsyncGenerator[Any, None]) -> AsyncIterator[AsyncIterator[Any]]:
        async with aclosing(
            messages if self._link_out is None else Carried(self._link_out, messages)
        ) as sent:
            yield sent


def install(args: Mapping[str, Any]) -> None:
    """Have all handlers of this process, and of processes forked from it, pass their messages through here.

    :param args: of a server's process: ``name``, and maybe ``network`` (``rate_mbps``, ``delay_s``), ``events_path``
    """
    network, handler = args.get("network"), TransformerConnectionHandler
    pace = Pace.of(network["rate_mbps"], network["delay_s"]) if network else None
    traffic = Traffic(Meter(EventLog(args.get("events_path")), args["name"]), pace)
    for name in UNARY:
        setattr(handler, name, _unary(getattr(handler, name), traffic))
    for name in STREAMS:
        setattr(handler, name, _stream(getattr(handler, name), traffic))
    handler._push_outputs = _push(handler._push_outputs, traffic)


# hivemind reads the kinds of messages from the annotations, which functools.wraps hands on, by the name of the argument
def _unary(original: Callable[..., Any], traffic: Traffic) -> Callable[..., Any]:
    @functools.wraps(original)
    async def rpc(self: Any, request: Any, context: Any) -> Any:
        await traffic.receive(request)
        reply = await original(self, request, context)
        traffic.meter.count(request.uid, reply)
        await traffic.send(reply)
        return reply

    return rpc


def _stream(original: Callable[..., Any], traffic: Traffic) -> Callable[..., Any]:
    @functools.wraps(original)
    async def rpc(self: Any, requests: Any, context: Any) -> Any:
        async with traffic.received(requests) as arrived:
            first = _First(arrived)
            try:
                async with traffic.sent(original(self, first, context)) as replies:
                    async for reply in replies:
                        traffic.meter.count(first.uids, reply)
                        yield reply
            finally:
                traffic.meter.flush()

    return rpc


def _push(original: Callable[..., Any], traffic: Traffic) -> Callable[..., Any]:
    @functools.wraps(original)
    async def push(self: Any, request: Any, serialized_outputs: Any, metadata: Any) -> None:
        if metadata.get("next_servers"):
            traffic.occupy(serialized_outputs.ByteSize())
        await original(self, request, serialized_outputs, metadata)

    return push


class _First:
    """The same messages; of the first, it keeps which blocks it asks."""

    def __init__(self, messages: AsyncIterator[Any]) -> None:
        self._messages = messages
        self.uids = ""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        self.uids = self.uids or message.uid
        return message
