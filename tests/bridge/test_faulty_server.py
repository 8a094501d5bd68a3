"""The handler that loses messages, in front of a stand-in for petals' own."""

from __future__ import annotations

import asyncio
import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from petals.server.handler import TransformerConnectionHandler  # noqa: E402

from swarmlab.bridge.faulty_server import ResettingHandler, StageReset  # noqa: E402
from swarmlab.bridge.reset_switch import ResetSwitch  # noqa: E402
from swarmlab.faults.session_reset import Chances, ResetControl, is_confirmed  # noqa: E402

pb: Any = importlib.import_module("hivemind.proto.runtime_pb2")
CACHE_BYTES = 1000


class Stage:
    """One server: petals' work is played, its cache is a number."""

    def __init__(self, folder, monkeypatch):
        self.control = ResetControl(folder, "stage1")
        self.cache = SimpleNamespace(current_size_bytes=0)
        self.seen = 0
        self.handler: Any = object.__new__(ResettingHandler)
        self.handler._switch = ResetSwitch(self.control.switch_path, self.control.log_path)
        self.handler.module_backends = {"m.0": SimpleNamespace(memory_cache=self.cache)}

        async def rpc_inference(_handler, requests, _context):
            try:
                async for request in requests:
                    self.cache.current_size_bytes = CACHE_BYTES
                    if not request.tensors:
                        return
                    self.seen += 1
                    yield pb.ExpertResponse()
            finally:
                self.cache.current_size_bytes = 0

        async def rpc_forward(_handler, _request, _context):
            self.seen += 1
            return pb.ExpertResponse()

        async def rpc_forward_stream(_handler, _requests, _context):
            self.seen += 1
            for _ in range(3):
                yield pb.ExpertResponse()

        for method in (rpc_inference, rpc_forward, rpc_forward_stream):
            monkeypatch.setattr(TransformerConnectionHandler, method.__name__, method)

    def lose(self, request=0.0, reply=0.0):
        self.control.set(Chances("cell", request, reply, seed=0))

    async def infer(self, n_requests, lose_after=None, **chances):
        """Replies to so many requests and a goodbye."""

        async def requests():
            for index in range(n_requests):
                if index == lose_after:
                    self.lose(**chances)
                yield pb.ExpertRequest(tensors=[pb.Tensor()])
            yield pb.ExpertRequest()

        return [reply async for reply in self.handler.rpc_inference(requests(), None)]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    return Stage(tmp_path, monkeypatch)


def stages_of(stage):
    return [line["stage"] for line in stage.control.news()]


def test_clients_find_it_under_the_name_of_petals_own_handler():
    ResettingHandler._collect_rpc_handlers()
    name = ResettingHandler._get_handle_name(None, "rpc_inference")
    assert name == TransformerConnectionHandler._get_handle_name(None, "rpc_inference")
    handlers: Any = ResettingHandler._rpc_handlers
    streams = {one.method_name: (one.stream_input, one.stream_output) for one in handlers}
    assert streams["rpc_inference"] == streams["rpc_forward_stream"] == (True, True)
    assert streams["rpc_forward"] == (False, False)
    assert streams["rpc_info"] == (False, False)


def test_it_passes_everything_on_as_long_as_nothing_is_lost(stage):
    assert len(asyncio.run(stage.infer(5))) == 5
    stage.lose(request=0.0, reply=0.0)
    assert len(asyncio.run(stage.infer(5))) == 5
    assert stage.control.news() == []


@pytest.mark.parametrize(("chances", "seen"), [({"request": 1.0}, 2), ({"reply": 1.0}, 3)])
def test_a_lost_message_ends_the_session_and_frees_its_cache(stage, chances, seen):
    with pytest.raises(StageReset) as reset:
        asyncio.run(stage.infer(5, lose_after=2, **chances))
    assert str(reset.value) == "", "to the client it looks like a connection that is reset"
    assert stage.seen == seen, "a request is lost before petals sees it, a reply after"
    inject, confirm = stage.control.news()
    assert (inject["stage"], confirm["stage"]) == ("inject", "confirm")
    assert (confirm["before_bytes"], confirm["after_bytes"]) == (CACHE_BYTES, 0)
    assert is_confirmed(confirm)


def test_a_goodbye_is_never_lost(stage):
    stage.lose(request=1.0, reply=1.0)
    assert asyncio.run(stage.infer(0)) == []
    assert stage.control.news() == []


@pytest.mark.parametrize("method", ["rpc_forward", "rpc_forward_stream"])
@pytest.mark.parametrize(("chances", "seen"), [({"request": 1.0}, 0), ({"reply": 1.0}, 1)])
def test_a_lost_forward_is_an_error_and_nothing_else(stage, method, chances, seen):
    async def ask():
        answer = getattr(stage.handler, method)(None, None)
        return await answer if method == "rpc_forward" else [part async for part in answer]

    assert asyncio.run(ask())
    stage.seen = 0
    stage.lose(**chances)
    with pytest.raises(StageReset):
        asyncio.run(ask())
    assert stage.seen == seen
    assert stages_of(stage) == ["inject", "confirm"]


def test_lines_of_the_log_name_the_cell(stage):
    stage.lose(request=1.0)
    with pytest.raises(StageReset):
        asyncio.run(stage.infer(1))
    lines = [json.loads(line) for line in stage.control.log_path.read_text().splitlines()]
    assert {line["cell"] for line in lines} == {"cell"}
