"""How each arm of +exp=failure_rates carries a generation on when a message, and with it a stage's session, is lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker
from hivemind.p2p import P2PHandlerError
from hivemind.utils import MSGPackSerializer
from petals.client.remote_forward_backward import run_remote_forward
from petals.client.routing import RemoteSequenceManager
from petals.server.handler import TransformerConnectionHandler
from petals.utils.packaging import pack_args_kwargs

from swarmlab.bridge.clients import arms
from swarmlab.bridge.clients.petals_span import open_span
from swarmlab.bridge.inference.wire import NO_HYPO_IDS, NO_PROMPTS

# told of every failure: cause, seconds lost by it, tokens computed again, requests for that, peers that failed
OnFailure = Callable[[dict[str, Any]], None]


class Lost(Exception):
    """The generation must start again from its prefix."""


class RateArm(Protocol):
    """One generation of one sequence."""

    def step(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of the last block for one more position, [1, 1, hidden].

        :raises Lost: if all positions so far are gone
        """
        ...

    def close(self) -> None: ...


class Restarting:
    """Caching with restarts: petals' own server sessions, one per stage, and no recovery whatever."""

    def __init__(self, manager: RemoteSequenceManager, max_length: int) -> None:
        spans = manager.make_sequence(0, len(manager), mode="min_latency", cache_tokens_needed=max_length)
        rpc_info = manager.rpc_info
        self._sessions = [open_span(manager, span, rpc_info, max_length) for span in spans]

    def step(self, inputs: torch.Tensor) -> torch.Tensor:
        step_id, hidden = str(uuid.uuid4()), inputs
        for session in self._sessions:
            try:
                hidden = session.step(hidden, NO_PROMPTS, NO_HYPO_IDS, step_id=step_id)
            except P2PHandlerError as error:
                raise Lost from error
        return hidden

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class Cacheless:
    """No attention caches: every step runs all positions through petals' rpc_forward; a failure repeats that step."""

    def __init__(self, manager: RemoteSequenceManager, on_failure: OnFailure) -> None:
        self._manager, self._on_failure = manager, on_failure
        self._spans = manager.make_sequence(0, len(manager), mode="min_latency")
        # asked here: on the worker's own loop it would wait for itself
        self._rpc_info: Any = manager.rpc_info
        self._inputs: torch.Tensor | None = None

    def step(self, inputs: torch.Tensor) -> torch.Tensor:
        prefix = inputs if self._inputs is None else torch.cat([self._inputs, inputs], dim=1)
        self._inputs = prefix
        while True:
            started_at_s = time.monotonic()
            try:
                outputs: Any = RemoteExpertWorker.run_coroutine(self._forward(prefix))
                return outputs[:, -1:]
            except P2PHandlerError:
                lost_s = time.monotonic() - started_at_s
                self._on_failure({"cause": "repeat", "total_s": lost_s, "tokens_replayed": prefix.shape[1]})

    async def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        manager: Any = self._manager
        for span in self._spans:
            stub = TransformerConnectionHandler.get_stub(manager.state.p2p, span.peer_id)
            uids = " ".join(manager.block_uids[span.start : span.end])
            tensors, structure = pack_args_kwargs(hidden, NO_PROMPTS)
            metadata = manager.get_request_metadata("rpc_forward", structure, uids, *tensors)
            (hidden,) = await run_remote_forward(
                uids,
                stub,
                self._rpc_info,
                *tensors,
                config=manager.config,
                metadata=MSGPackSerializer.dumps(metadata),
            )
        return hidden

    def close(self) -> None:
        self._inputs = None


def begin(
    arm: str,
    manager: RemoteSequenceManager,
    max_length: int,
    *,
    model_path: str,
    recovery: Mapping[str, Any],
    on_failure: OnFailure,
) -> RateArm:
    """A generation of ``arm`` from its first position on."""
    if arm == "restart":
        return Restarting(manager, max_length)
    if arm == "cacheless":
        return Cacheless(manager, on_failure)
    return arms.open_session(
        arm, manager, max_length, model_path=model_path, recovery=recovery, on_event=on_failure
    )
