"""petals' inference messages: one request out, one reply back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.p2p import PeerID
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from petals.utils.packaging import pack_args_kwargs

from swarmlab.recovery.failure import Cause, PeerFailed
from swarmlab.types import Span

# What petals sends in place of a tensor that is not there.
NO_PROMPTS = torch.empty(0)
NO_HYPO_IDS = torch.empty(0, dtype=torch.int64)

NextServer = tuple[str, str, int, int]  # peer id, session id, first block, end block


@dataclass(frozen=True)
class Payload:
    """The tensors of one request.

    :param inputs: [batch, tokens, hidden]
    :param prompts: deep prompts of the span, [blocks, batch or 1, prompt tokens, hidden]; NO_PROMPTS if none
    :param hypo_ids: int64 [batch]; NO_HYPO_IDS if rows stay
    """

    inputs: torch.Tensor
    prompts: torch.Tensor = NO_PROMPTS
    hypo_ids: torch.Tensor = NO_HYPO_IDS

    @property
    def n_further(self) -> int:
        """Tokens over all rows, without the first of each row."""
        return self.inputs.shape[0] * (self.inputs.shape[1] - 1)


def make_request(uids: str, payload: Payload, metadata: dict, compression: int) -> runtime_pb2.ExpertRequest:
    """Serialize a request; ``metadata`` is completed with the structure of the arguments."""
    tensors, structure = pack_args_kwargs(payload.inputs, payload.prompts, payload.hypo_ids)
    return runtime_pb2.ExpertRequest(
        uid=uids,
        tensors=[serialize_torch_tensor(tensor, _compression(tensor, compression)) for tensor in tensors],
        metadata=MSGPackSerializer.dumps({**metadata, "args_structure": structure}),
    )


def _compression(tensor: torch.Tensor, wanted: int) -> int:
    return wanted if tensor.is_floating_point() and tensor.numel() else runtime_pb2.CompressionType.NONE


def read_outputs(
    reply: runtime_pb2.ExpertResponse, inputs: torch.Tensor, peer_id: PeerID, span: Span
) -> torch.Tensor:
    """The outputs in a reply, [batch, tokens, hidden] as the inputs.

    :raises PeerFailed: if the reply does not fit the request
    """
    try:
        outputs = deserialize_torch_tensor(reply.tensors[0]) if reply.tensors else None
    except Exception as error:
        detail = f"returned what is no tensor: {error!r}"
        raise PeerFailed(peer_id.to_base58(), str(span), Cause.REFUSED, detail) from error
    if outputs is None or outputs.shape != inputs.shape:
        shape = None if outputs is None else tuple(outputs.shape)
        detail = f"returned shape {shape} for inputs {tuple(inputs.shape)}"
        raise PeerFailed(peer_id.to_base58(), str(span), Cause.REFUSED, detail)
    return outputs


def step_metadata(
    session_id: str, step_id: str, *, opening: dict | None = None, next_servers: Sequence[NextServer] = ()
) -> dict:
    """What accompanies the tensors.

    :param opening: what the first request of a stream must add: max_length, alloc_timeout, points, adapter
    :param next_servers: where the server may push its outputs to directly
    """
    metadata: dict = {"session_id": session_id, "step_id": step_id, **(opening or {})}
    if next_servers:
        metadata["next_servers"] = [list(server) for server in next_servers]
    return metadata
