"""Streams over real sockets, in hivemind's framing, on the loops that hivemind and asyncio use."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p import P2P, PeerID  # noqa: E402

from swarmlab.bridge.inference import stream as stream_module  # noqa: E402
from swarmlab.bridge.inference.stream import SpanStream  # noqa: E402
from swarmlab.bridge.inference.watch import watched_exchange  # noqa: E402
from swarmlab.recovery.failure import Cause, PeerFailed  # noqa: E402
from swarmlab.recovery.latency import ReplyLatency  # noqa: E402
from swarmlab.recovery.settings import RecoverySettings  # noqa: E402
from swarmlab.types import Span  # noqa: E402

pb: Any = importlib.import_module("hivemind.proto.runtime_pb2")
p2pd_pb: Any = importlib.import_module("hivemind.proto.p2pd_pb2")
PEER, SPAN = PeerID(b"\x12\x20" + bytes(32)), Span(0, 4)
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
DEADLINE_S = 20.0  # of a whole test; what should happen at once must not need it


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request) -> Callable[[Coroutine], Any]:
    """Runs a coroutine to its end on a loop of its own."""

    def run_on_loop(work: Coroutine) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(work, DEADLINE_S))

    return run_on_loop


class Pair:
    """A stream of ours, and the other end of its socket."""

    def __init__(self, ours: Ends, theirs: Ends) -> None:
        self.reader, self.writer = theirs
        self.our_writer = ours[1]
        self.broken: list[SpanStream] = []
        self.told = asyncio.Event()
        self.stream = SpanStream(PEER, SPAN, *ours, self._on_broken)

    def _on_broken(self, stream: SpanStream) -> None:
        self.broken.append(stream)
        self.told.set()

    @classmethod
    async def create(cls) -> Pair:
        return cls(*[await asyncio.open_unix_connection(sock=one) for one in socket.socketpair()])

    def stop_reading(self) -> None:
        cast(asyncio.ReadTransport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.ReadTransport, self.writer.transport).resume_reading()

    async def request(self) -> Any:
        """The next request that arrives."""
        request, _ = await P2P.receive_protobuf(pb.ExpertRequest, self.reader)
        return request

    async def reply(self, text: str) -> None:
        await P2P.send_protobuf(pb.ExpertResponse(metadata=text.encode()), self.writer)

    async def fail(self, text: str) -> None:
        await P2P.send_protobuf(p2pd_pb.RPCError(message=text), self.writer)

    async def ended(self) -> bytes:
        """What still arrives before the end of the stream, which must come."""
        try:
            return await self.reader.read()
        except ConnectionResetError:  # something of ours was not read before the end
            return b""


def request(text: str) -> Any:
    return pb.ExpertRequest(uid=text)


async def failure_of(work) -> PeerFailed:
    with pytest.raises(PeerFailed) as caught:
        await work
    return caught.value


def test_replies_come_back_in_order(run):
    async def main():
        pair = await Pair.create()
        for text in "ab":
            await pair.stream.send(request(text))
        for text in "ab":
            assert (await pair.request()).uid == text
            await pair.reply(text)
        for text in "ab":
            assert (await pair.stream.receive()).metadata == text.encode()
        assert pair.stream.n_requests == 2
        assert pair.stream.failure is None

    run(main())


@pytest.mark.parametrize(
    "last_words", [b"", b"\x00", b"\x00" + (100).to_bytes(8, "big") + b"half of it", b"\x77"]
)
def test_the_end_is_noticed_while_a_request_is_in_flight(run, last_words):
    async def main():
        pair = await Pair.create()
        exchange = asyncio.create_task(pair.stream.exchange(request("a")))
        await pair.request()
        pair.writer.write(last_words)
        pair.writer.close()
        failure = await failure_of(exchange)
        assert failure.attempt.cause is Cause.BROKEN
        assert failure.attempt.peer_id == PEER.to_base58()
        assert pair.broken == [pair.stream]
        # and it stays broken
        assert await failure_of(pair.stream.send(request("b"))) is failure
        assert await failure_of(pair.stream.receive()) is failure
        await pair.ended()

    run(main())


def test_the_end_is_noticed_between_requests(run):
    async def main():
        pair = await Pair.create()
        pair.writer.close()
        await pair.told.wait()
        assert pair.stream.failure is not None

    run(main())


def test_all_who_wait_are_told(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        waiting = [asyncio.create_task(pair.stream.receive()) for _ in range(3)]
        await pair.request()
        pair.writer.close()
        assert len({id(await failure_of(one)) for one in waiting}) == 1

    run(main())


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Remote peer does not serve tiny.3", Cause.STALE),
        ("Could not allocate 100 within 2.0 seconds", Cause.BUSY),
        ("Cannot allocate KV cache for 9000 tokens, max = 8192", Cause.UNABLE),
        ("something else", Cause.REFUSED),
        ("", Cause.RESET),  # petals' time limits end a session so
    ],
)
def test_error_texts_become_causes(run, text, cause):
    async def main():
        pair = await Pair.create()
        exchange = asyncio.create_task(pair.stream.exchange(request("a")))
        await pair.request()
        await pair.fail(text)
        failure = await failure_of(exchange)
        assert failure.attempt.cause is cause
        assert text in failure.attempt.detail
        await pair.ended()

    run(main())


def test_a_reply_that_came_before_the_end_counts(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        await pair.request()
        await pair.reply("a")
        pair.writer.close()
        while pair.stream.failure is None:
            await asyncio.sleep(0)
        assert (await pair.stream.receive()).metadata == b"a"
        await failure_of(pair.stream.receive())

    run(main())


def test_late_replies_after_abandoning_never_surface(run):
    async def main():
        pair = await Pair.create()
        exchange = asyncio.create_task(pair.stream.exchange(request("a")))
        await pair.request()
        failure = pair.stream.abandon(Cause.HUNG, "no answer")
        pair.writer.write(b"\x00" + (0).to_bytes(8, "big"))  # an empty reply, too late
        assert await failure_of(exchange) is failure
        assert await failure_of(pair.stream.receive()) is failure
        assert await failure_of(pair.stream.exchange(request("b"))) is failure
        assert pair.stream.abandon(Cause.STUCK, "another reason") is failure
        await pair.ended()

    run(main())


def test_a_goodbye_is_said_and_the_end_awaited(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        await pair.request()
        closing = asyncio.create_task(pair.stream.aclose(DEADLINE_S))
        goodbye = await pair.request()
        assert not goodbye.tensors
        pair.writer.close()  # what a server does then
        await closing
        assert not pair.broken, "a stream that we close is not broken"

    run(main())


def test_a_stream_never_used_is_closed_without_a_word(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.aclose(DEADLINE_S)
        assert await pair.ended() == b""

    run(main())


def test_closing_does_not_wait_for_a_server_that_does_not_answer(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        await pair.stream.aclose(0.05)
        assert await pair.ended()  # the request and the goodbye, then the end

    run(main())


def test_closing_does_not_wait_for_a_server_that_does_not_read(run):
    async def main():
        pair = await Pair.create()
        pair.stop_reading()
        sending = asyncio.create_task(pair.stream.send(pb.ExpertRequest(uid="a" * 50_000_000)))
        while pair.our_writer.transport.get_write_buffer_size() == 0:
            await asyncio.sleep(0)
        await pair.stream.aclose(0.05)
        await asyncio.wait({sending})  # whatever came of it, it does not wait on
        await failure_of(pair.stream.receive())
        pair.go_on_reading()
        assert len(await pair.ended()) < 50_000_000, "the rest was sent after all"

    run(main())


def test_a_second_goodbye_is_no_other(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        await asyncio.gather(pair.stream.aclose(0.05), pair.stream.aclose(0.05))
        await pair.stream.aclose(0.05)
        assert await pair.request() == request("a")
        assert not (await pair.request()).tensors
        assert await pair.ended() == b""

    run(main())


def test_a_cancelled_goodbye_lets_go_too(run):
    async def main():
        pair = await Pair.create()
        await pair.stream.send(request("a"))
        closing = asyncio.create_task(pair.stream.aclose(DEADLINE_S))
        assert await pair.request() == request("a")
        await pair.request()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await pair.ended() == b""

    run(main())


def test_a_server_that_stops_reading_is_found_out_like_one_that_hangs(run):
    settings = RecoverySettings(first_reply_s=0.05, token_s=0.001)

    async def main():
        pair = await Pair.create()
        pair.stop_reading()
        huge = pb.ExpertRequest(uid="a" * 50_000_000)

        async def no_answer() -> bool:
            return False

        failure = await failure_of(watched_exchange(pair.stream, huge, 0, ReplyLatency(settings), no_answer))
        assert failure.attempt.cause is Cause.HUNG
        pair.go_on_reading()
        assert len(await pair.ended()) < 50_000_000, "the rest was sent after all"

    run(main())


class Daemon:
    """The part of hivemind's P2P by which streams are opened; it takes as long as it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ready, self.asked, self.opened = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._error = error

    async def call_binary_stream_handler(self, _peer_id, name):
        assert name.endswith("rpc_inference")
        self.asked.set()
        await self.ready.wait()
        if self._error is not None:
            raise self._error
        ours, theirs = socket.socketpair()
        self.reader, self.writer = await asyncio.open_unix_connection(sock=theirs)
        self.opened.set()
        return (SimpleNamespace(), *await asyncio.open_unix_connection(sock=ours))


def open_stream(daemon: Any, timeout_s: float) -> Coroutine[Any, Any, SpanStream]:
    return SpanStream.open(daemon, PEER, SPAN, patience_s=lambda _waited_s: timeout_s)


def test_opening(run):
    async def main():
        daemon = Daemon()
        daemon.ready.set()
        stream = await open_stream(daemon, DEADLINE_S)
        assert stream.failure is None
        assert stream.n_requests == 0
        await stream.aclose(DEADLINE_S)
        assert await daemon.reader.read() == b"", "opening must not send anything"

    run(main())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionError("failed to dial"), Cause.UNREACHABLE),
        (RuntimeError("protocol not supported"), Cause.STALE),
    ],
)
def test_a_failed_dial_is_blamed_on_the_peer(run, error, cause):
    async def main():
        daemon = Daemon(error)
        daemon.ready.set()
        failure = await failure_of(open_stream(daemon, DEADLINE_S))
        assert failure.attempt.cause is cause
        assert failure.attempt.peer_id == PEER.to_base58()

    run(main())


def test_a_dial_that_takes_too_long_is_blamed_and_closed_when_it_comes_after_all(run):
    async def main():
        daemon = Daemon()
        failure = await failure_of(open_stream(daemon, 0.01))
        assert failure.attempt.cause is Cause.UNREACHABLE
        daemon.ready.set()
        await daemon.opened.wait()
        assert await daemon.reader.read() == b""
        assert not stream_module._late

    run(main())


def test_a_slow_dial_is_given_up_as_soon_as_there_are_others(run):
    async def main():
        daemon, others = Daemon(), []

        def patience_s(waited_s: float) -> float:
            if waited_s > 0:
                others.append("somebody who has just come back")
            return 0.0 if others else DEADLINE_S

        failure = await failure_of(SpanStream.open(cast(Any, daemon), PEER, SPAN, patience_s=patience_s))
        assert failure.attempt.cause is Cause.UNREACHABLE
        assert len(others) == 1

    run(main())


def test_a_cancelled_dial_is_closed_when_it_comes_after_all(run):
    async def main():
        daemon = Daemon()
        opening = asyncio.create_task(open_stream(daemon, DEADLINE_S))
        await daemon.asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        daemon.ready.set()
        await daemon.opened.wait()
        assert await daemon.reader.read() == b""

    run(main())
