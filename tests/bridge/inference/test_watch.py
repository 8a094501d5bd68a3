"""Late replies in virtual time: who is slow, who hangs, who is stuck."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p import P2P, PeerID  # noqa: E402

from swarmlab.bridge.inference import stream, watch  # noqa: E402
from swarmlab.recovery.failure import Cause, PeerFailed  # noqa: E402
from swarmlab.recovery.latency import ReplyLatency  # noqa: E402
from swarmlab.recovery.settings import RecoverySettings  # noqa: E402
from swarmlab.types import Span  # noqa: E402
from tests.bridge import virtual_time  # noqa: E402
from tests.bridge.fake_swarm import PipeWriter  # noqa: E402

pb: Any = importlib.import_module("hivemind.proto.runtime_pb2")
PEER = PeerID(b"\x12\x20" + bytes(32))
SETTINGS = RecoverySettings(
    first_reply_s=4.0,
    suspect_floor_s=0.5,
    suspect_factor=6.0,
    probe_s=1.0,
    hard_floor_s=20.0,
    hard_factor=60.0,
)
STEP_S = 0.2  # so replies are suspicious after 1.2 s and given up after 20 s


class Exchange:
    """One watched request.

    :param reply_after_s: None for never
    :param alive: what each probe answers after ``probe_s``; None is a probe that never ends
    """

    def __init__(
        self, reply_after_s: float | None, *, alive: bool | None = True, probe_s: float = 0.1
    ) -> None:
        self._reply_after_s, self._alive, self._probe_s = reply_after_s, alive, probe_s
        self.n_probes = self.n_probes_cancelled = 0
        self.latency = ReplyLatency(SETTINGS)
        self.latency.observe(STEP_S, 0)

    async def run(self) -> Any:
        self.began_s = asyncio.get_running_loop().time()
        reader = asyncio.StreamReader()
        writer: Any = PipeWriter(asyncio.StreamReader())
        self.stream = stream.SpanStream(PEER, Span(0, 2), reader, writer)
        replying: Any = PipeWriter(reader)
        if self._reply_after_s is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self._reply_after_s, lambda: asyncio.ensure_future(self._reply(replying)))
        try:
            return await watch.watched_exchange(self.stream, pb.ExpertRequest(), 0, self.latency, self._probe)
        finally:
            self.took_s = asyncio.get_running_loop().time() - self.began_s

    async def _reply(self, writer: Any) -> None:
        await P2P.send_protobuf(pb.ExpertResponse(metadata=b"here"), writer)

    async def _probe(self) -> bool:
        self.n_probes += 1
        try:
            await asyncio.sleep(self._probe_s if self._alive is not None else 1e6)
        except asyncio.CancelledError:
            self.n_probes_cancelled += 1
            raise
        return bool(self._alive)


@pytest.fixture(autouse=True)
def _virtual_clock():
    with virtual_time.clock_of_the_loop(stream, watch):
        yield


def failed(exchange: Exchange) -> Cause:
    with pytest.raises(PeerFailed) as caught:
        virtual_time.run(exchange.run())
    assert exchange.stream.failure is caught.value, "a stream that was given up must not be used again"
    return caught.value.attempt.cause


def test_a_reply_in_time_is_not_probed():
    exchange = Exchange(1.1)
    assert virtual_time.run(exchange.run()).metadata == b"here"
    assert exchange.n_probes == 0
    assert exchange.stream.failure is None


def test_a_reply_in_time_is_learnt():
    exchange = Exchange(1.1)
    virtual_time.run(exchange.run())
    assert exchange.latency.step_s == pytest.approx(0.8 * STEP_S + 0.2 * 1.1)


def test_a_server_that_answers_probes_is_slow():
    exchange = Exchange(15.0)
    assert virtual_time.run(exchange.run()).metadata == b"here"
    assert exchange.n_probes == pytest.approx(15.0 / 1.3, abs=1)
    assert exchange.stream.failure is None


def test_a_reply_while_a_probe_is_under_way_counts():
    exchange = Exchange(1.25, alive=False)
    assert virtual_time.run(exchange.run()).metadata == b"here"
    assert exchange.n_probes_cancelled == 1


def test_no_answer_to_a_probe_is_a_hung_server():
    exchange = Exchange(None, alive=False, probe_s=1.0)
    assert failed(exchange) is Cause.HUNG
    assert exchange.took_s == pytest.approx(2.2)
    assert exchange.latency.step_s == STEP_S, "a failure teaches nothing about speed"


def test_answers_but_no_reply_is_a_stuck_server():
    exchange = Exchange(None)
    assert failed(exchange) is Cause.STUCK
    assert exchange.took_s == pytest.approx(20.0, abs=0.2)


def test_a_cancelled_step_leaves_no_probe_behind():
    exchange = Exchange(None, alive=None)

    async def main() -> int:
        task = asyncio.create_task(exchange.run())
        await asyncio.sleep(5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        exchange.stream.abandon(Cause.BROKEN, "the test is over")
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert virtual_time.run(main()) == 1
    assert exchange.n_probes_cancelled == 1


def test_an_error_of_the_server_passes_through():
    exchange = Exchange(None)

    async def main() -> None:
        task = asyncio.create_task(exchange.run())
        await asyncio.sleep(0.3)
        exchange.stream.abandon(Cause.BROKEN, "it ended")
        await task

    with pytest.raises(PeerFailed, match="it ended"):
        virtual_time.run(main())
    assert exchange.n_probes == 0
