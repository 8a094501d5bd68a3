"""What a handler takes and refuses; the table of blocks is real, petals' part is played."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from petals.server.handler import TransformerConnectionHandler  # noqa: E402

from swarmlab.bridge.serving.handler import BlockHandler  # noqa: E402
from swarmlab.bridge.serving.presence import Presence  # noqa: E402
from swarmlab.recovery.failure import Cause, cause_of  # noqa: E402

pb: Any = __import__("hivemind.proto.runtime_pb2", fromlist=["ExpertRequest"])


class Handler:
    """The handler with petals' part played."""

    def __init__(self, monkeypatch):
        self.presence, self.during, self.between = Presence(16), [], lambda: None
        for block in (3, 4):
            self.presence.set_held(block, held=True)
        self.handler: Any = object.__new__(BlockHandler)
        self.handler.module_backends = dict.fromkeys(f"m.{block}" for block in range(16))
        self.handler._presence = self.presence

        async def rpc_inference(handler, requests, context):
            first = await anext(requests)
            steps = handler._iterate_inference_steps(first, requests, "id", first.uid.split(), context)
            async for _ in steps:
                self.during.append(self.presence.sessions_on([3, 4]))
                yield pb.ExpertResponse()
                self.between()

        async def steps(_handler, first, requests, _session_id, _uids, _context):
            yield first, {}
            async for request in requests:  # or those that another server pushes
                yield request, {}

        async def rpc_info(_handler, _request, _context):
            return "info"

        monkeypatch.setattr(TransformerConnectionHandler, "rpc_inference", rpc_inference)
        monkeypatch.setattr(TransformerConnectionHandler, "_iterate_inference_steps", steps)
        monkeypatch.setattr(TransformerConnectionHandler, "rpc_info", rpc_info)

    async def infer(self, uids, steps=2, fail=False):
        async def requests():
            for _ in range(steps):
                yield pb.ExpertRequest(uid=uids)
            if fail:
                raise ConnectionError

        return [reply async for reply in self.handler.rpc_inference(requests(), None)]


@pytest.fixture
def handler(monkeypatch):
    return Handler(monkeypatch)


def test_a_session_counts_on_its_blocks_as_long_as_it_lasts(handler):
    assert len(asyncio.run(handler.infer("m.3 m.4"))) == 2
    assert handler.during == [1, 1]
    assert handler.presence.sessions_on([3, 4]) == 0
    with pytest.raises(ConnectionError):
        asyncio.run(handler.infer("m.3", fail=True))
    assert handler.presence.sessions_on([3, 4]) == 0


def test_a_session_on_a_block_that_was_away_is_refused_and_one_on_others_goes_on(handler):
    """Its attention cache may be of other weights: an error is mended by the client, a wrong token is not."""

    def away_and_back():
        handler.presence.set_held(4, held=False)
        handler.presence.set_held(4, held=True)

    handler.between = away_and_back
    assert len(asyncio.run(handler.infer("m.3", steps=3))) == 3
    with pytest.raises(RuntimeError, match="dropped and loaded again") as caught:
        asyncio.run(handler.infer("m.3 m.4"))
    assert cause_of(str(caught.value)) is Cause.RESET, "the server is well, and may be the only one"
    handler.between = lambda: handler.presence.set_held(4, held=False)
    with pytest.raises(RuntimeError, match=r"does not serve m\.4"):
        asyncio.run(handler.infer("m.3 m.4"))
    assert handler.presence.sessions_on([3, 4]) == 0


@pytest.mark.parametrize("uids", ["m.5", "m.3 m.4 m.5", "m.99", "other.3", ""])
def test_a_block_that_is_not_held_is_refused_in_petals_words(handler, uids):
    with pytest.raises(RuntimeError, match="Remote peer does not serve"):
        asyncio.run(handler.infer(uids))
    assert handler.presence.sessions_on(range(16)) == 0


def test_asked_about_a_block_it_answers_only_if_it_holds_it(handler):
    info = handler.handler.rpc_info
    assert asyncio.run(info(pb.ExpertUID(uid="m.3"), None)) == "info"
    assert asyncio.run(info(pb.ExpertUID(), None)) == "info"
    with pytest.raises(RuntimeError, match="does not serve"):
        asyncio.run(info(pb.ExpertUID(uid="m.9"), None))
    assert BlockHandler.__name__ == "TransformerConnectionHandler", "or clients ask in vain"
