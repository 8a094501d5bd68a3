"""Requests as petals' servers read them, and replies as they write them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor  # noqa: E402
from hivemind.p2p import PeerID  # noqa: E402
from hivemind.utils import MSGPackSerializer  # noqa: E402
from petals.utils.packaging import unpack_args_kwargs  # noqa: E402

from swarmlab.bridge.inference.wire import (  # noqa: E402
    NO_HYPO_IDS,
    NO_PROMPTS,
    Payload,
    make_request,
    read_outputs,
    step_metadata,
)
from swarmlab.recovery.failure import Cause, PeerFailed  # noqa: E402
from swarmlab.types import Span  # noqa: E402

pb: Any = importlib.import_module("hivemind.proto.runtime_pb2")
NONE, FLOAT16 = pb.CompressionType.NONE, pb.CompressionType.FLOAT16
PEER = PeerID(b"\x12\x20" + bytes(32))


def received(request):
    """The arguments that a petals server unpacks."""
    tensors = [deserialize_torch_tensor(tensor) for tensor in request.tensors]
    metadata: Any = MSGPackSerializer.loads(request.metadata)
    args, kwargs = unpack_args_kwargs(tensors, metadata["args_structure"])
    assert not kwargs
    return args


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_server_reads_what_was_sent(dtype):
    history = torch.randn(2, 9, 4).to(dtype)
    prompts, hypo_ids = torch.randn(3, 1, 2, 4).to(dtype), torch.tensor([1, 1])
    payload = Payload(history[:, 3:7], prompts, hypo_ids)  # a slice of a history is not contiguous
    request = make_request("m.0 m.1 m.2", payload, {"step_id": "s"}, NONE)
    assert request.uid == "m.0 m.1 m.2"
    for got, sent in zip(received(request), (history[:, 3:7], prompts, hypo_ids), strict=True):
        assert got.dtype == sent.dtype
        assert torch.equal(got, sent)


def test_absent_arguments_are_petals_dummies():
    inputs, prompts, hypo_ids = received(make_request("m.0", Payload(torch.ones(1, 1, 4)), {}, NONE))
    assert inputs.shape == (1, 1, 4)
    assert prompts.numel() == 0
    assert hypo_ids.numel() == 0
    assert hypo_ids.dtype == torch.int64


def test_arguments_that_are_one_object_stay_three_arguments():
    payload = Payload(torch.ones(1, 1, 4), NO_PROMPTS, NO_HYPO_IDS)
    for _ in range(2):  # the constants are shared by all requests
        assert len(make_request("m.0", payload, {}, NONE).tensors) == 3


def test_compression_is_for_numbers_only():
    payload = Payload(torch.randn(2, 3, 4), NO_PROMPTS, torch.tensor([1, 0]))
    request = make_request("m.0", payload, {}, FLOAT16)
    inputs, _, hypo_ids = received(request)
    assert request.tensors[0].compression == FLOAT16
    assert torch.allclose(inputs, payload.inputs, atol=1e-2)
    assert hypo_ids.tolist() == [1, 0]


def test_the_metadata_of_first_and_later_requests():
    first = step_metadata("session", "step", opening={"max_length": 5})
    assert first == {"session_id": "session", "step_id": "step", "max_length": 5}
    later = step_metadata("session", "step", next_servers=[("peer", "next", 4, 8)])
    assert later == {"session_id": "session", "step_id": "step", "next_servers": [["peer", "next", 4, 8]]}


def test_making_a_request_leaves_the_callers_metadata_alone():
    metadata = {"step_id": "s"}
    make_request("m.0", Payload(torch.ones(1, 1, 4)), metadata, NONE)
    assert metadata == {"step_id": "s"}


def test_outputs_come_back():
    outputs = torch.randn(2, 3, 4)
    reply = pb.ExpertResponse(tensors=[serialize_torch_tensor(outputs)])
    assert torch.equal(read_outputs(reply, torch.zeros(2, 3, 4), PEER, Span(0, 2)), outputs)


@pytest.mark.parametrize(
    "reply",
    [
        pb.ExpertResponse(),
        pb.ExpertResponse(tensors=[serialize_torch_tensor(torch.zeros(2, 1, 4))]),
        pb.ExpertResponse(tensors=[serialize_torch_tensor(torch.zeros(2, 30, 4))]),
        pb.ExpertResponse(tensors=[pb.Tensor(buffer=b"garbage", size=[2, 3, 4], dtype="float32")]),
        pb.ExpertResponse(tensors=[pb.Tensor(buffer=b"", size=[2, 3, 4], dtype="no such type")]),
    ],
)
def test_a_reply_that_does_not_fit_is_the_servers_failure(reply):
    with pytest.raises(PeerFailed) as caught:
        read_outputs(reply, torch.zeros(2, 3, 4), PEER, Span(0, 2))
    assert caught.value.attempt.cause is Cause.REFUSED
    assert caught.value.attempt.peer_id == PEER.to_base58()


def test_tokens_beyond_the_first_of_each_row():
    assert Payload(torch.zeros(3, 1, 4)).n_further == 0
    assert Payload(torch.zeros(3, 5, 4)).n_further == 12
