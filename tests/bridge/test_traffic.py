"""What stands in front of the handlers: tokens are counted, messages are held back, and hivemind sees no difference."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from swarmlab.bridge import compat

compat.apply()

from petals.server.handler import TransformerConnectionHandler  # noqa: E402 - after compat

from swarmlab.bridge import link as link_module  # noqa: E402 - after compat
from swarmlab.bridge import traffic as traffic_module  # noqa: E402 - after compat
from swarmlab.bridge.events import EventLog  # noqa: E402 - after compat
from swarmlab.bridge.link import Pace  # noqa: E402 - after compat
from swarmlab.bridge.traffic import Meter, Traffic, span_of  # noqa: E402 - after compat
from tests.bridge.virtual_time import VirtualLoop, clock_of_the_loop  # noqa: E402 - after compat

RPCS = (*traffic_module.UNARY, *traffic_module.STREAMS, "_push_outputs")


class Message:
    def __init__(self, n_bytes=100, uid="", tensors=()):
        self.n_bytes, self.uid, self.tensors = n_bytes, uid, tensors

    def ByteSize(self):  # noqa: N802 - as protobuf has it
        return self.n_bytes


def reply(*shapes):
    return Message(tensors=[SimpleNamespace(size=list(shape)) for shape in shapes])


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


class Clock:
    def __init__(self):
        self.now_s = 10.0

    def __call__(self):
        return self.now_s


def test_the_span_of_uids():
    assert span_of("tiny.4 tiny.5 tiny.6") == (4, 7)
    assert span_of("a.b.11") == (11, 12)
    assert span_of("") is None
    assert span_of("tiny.x") is None


def test_tokens_are_counted_per_span_and_told_once_a_second(path):
    clock = Clock()
    meter = Meter(EventLog(path), "first", clock)
    meter.count("m.0 m.1", reply((2, 5, 64)))
    meter.count("m.1", reply((1, 1, 64)))
    assert not path.read_text()
    clock.now_s += 2.0
    meter.count("m.0 m.1", reply((2, 1, 64)))
    found = [
        {key: row[key] for key in ("kind", "server", "start", "end", "tokens", "seconds")}
        for row in rows(path)
    ]
    assert found == [
        {"kind": "delivered", "server": "first", "start": 0, "end": 2, "tokens": 12, "seconds": 2.0},
        {"kind": "delivered", "server": "first", "start": 1, "end": 2, "tokens": 1, "seconds": 2.0},
    ]
    clock.now_s += 0.5
    meter.flush()
    assert len(rows(path)) == 2  # nothing more was delivered


def test_parts_and_empty_replies_are_no_tokens(path):
    meter = Meter(EventLog(path), "first")
    meter.count("m.0", reply(()))
    meter.count("m.0", SimpleNamespace(serialized_info=b""))
    meter.flush()
    assert not path.read_text()


def run_stream(traffic, original, requests):
    loop = VirtualLoop()

    async def main():
        async def sent():
            for request in requests:
                yield request

        start_s = loop.time()
        rpc = traffic_module._stream(original, traffic)
        return [(one, round(loop.time() - start_s, 6)) async for one in rpc(None, sent(), None)]

    try:
        with clock_of_the_loop(link_module):
            return loop.run_until_complete(main())
    finally:
        loop.close()


async def answers(_self, requests, _context):
    """One answer per request, as petals' handlers stream them."""
    async for _ in requests:
        yield reply((1, 1, 64))


def test_a_stream_is_counted_to_its_end(path):
    traffic = Traffic(Meter(EventLog(path), "s"), None)
    got = run_stream(traffic, answers, [Message(uid="m.3 m.4"), Message()])
    assert [at_s for _, at_s in got] == [0.0, 0.0]
    assert [(row["start"], row["end"], row["tokens"]) for row in rows(path)] == [(3, 5, 2)]


def test_a_request_and_its_reply_take_half_a_round_trip_each(path):
    traffic = Traffic(
        Meter(EventLog(path), "s"), Pace.of(0.008, 0.05)
    )  # 1,000 bytes/s: 0.1 s for each message
    got = run_stream(traffic, answers, [Message(uid="m.0")])
    assert [at_s for _, at_s in got] == [0.3]


def test_a_stream_that_is_left_closes_what_stands_behind_it(path):
    closed = []

    async def endless(_self, requests, _context):
        try:
            async for _ in requests:
                while True:
                    await asyncio.sleep(0)
                    yield reply((1, 1, 64))
        finally:
            closed.append(True)

    async def main():
        async def sent():
            yield Message(uid="m.0")

        for pace in (None, Pace.of(None, 0.0)):
            traffic = Traffic(Meter(EventLog(path), "s"), pace)
            stream = traffic_module._stream(endless, traffic)(None, sent(), None)
            await anext(stream)
            await stream.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert closed == [True, True]


def test_hivemind_sees_the_handlers_that_it_saw_before(path, monkeypatch):
    class Before(TransformerConnectionHandler):
        pass

    for name in RPCS:  # undone after the test
        monkeypatch.setattr(TransformerConnectionHandler, name, getattr(TransformerConnectionHandler, name))
    Before._collect_rpc_handlers()
    traffic_module.install(
        {"name": "s", "network": {"rate_mbps": 100.0, "delay_s": 0.0025}, "events_path": str(path)}
    )

    class After(TransformerConnectionHandler):
        pass

    After._collect_rpc_handlers()
    assert After._rpc_handlers == Before._rpc_handlers
    assert After.rpc_inference is not Before._rpc_handlers
