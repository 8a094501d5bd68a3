"""A drop-in replacement for petals' InferenceSession that survives the failure of servers.

    with FaultTolerantSession(model.transformer.h.sequence_manager, max_length=512) as session:
        with model.use_session(session):
            model.generate(inputs, max_new_tokens=100)

Works with the unmodified petals client and unmodified petals 2.2.0 servers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import numpy as np
import torch
from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker
from petals.client.routing import RemoteSequenceManager

from swarmlab.bridge.inference.chain import Session
from swarmlab.bridge.inference.flow import Flow, StepInput
from swarmlab.bridge.inference.repairs import EventHandler
from swarmlab.bridge.inference.router import Router
from swarmlab.bridge.inference.standby import StandbyCost
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import Span

T = TypeVar("T")


class FaultTolerantSession:
    """A multi-step inference session over all blocks of a model; any server of it may fail at any time.

    :param manager: of a petals model: ``model.transformer.h.sequence_manager``
    :param max_length: positions to reserve attention caches for, prompt included
    :param on_event: called with one dict per completed recovery (on another thread)
    :param on_opening: likewise with one per opening of spans under which nobody failed
    """

    def __init__(
        self,
        manager: RemoteSequenceManager,
        max_length: int,
        *,
        settings: RecoverySettings | None = None,
        on_event: EventHandler | None = None,
        on_opening: EventHandler | None = None,
    ) -> None:
        if max_length < 1:
            raise ValueError(f"max_length is {max_length}, must be at least 1")
        self._hidden_size = manager.config.hidden_size
        self._max_length = max_length
        self.output_ids: torch.Tensor | None = None  # kept by petals' generate()
        self._closed = False
        settings = settings or RecoverySettings()
        self._flow = self._run(_make_flow(manager, settings, max_length, on_event, on_opening))

    @property
    def num_blocks(self) -> int:
        return self._flow.session.router.n_blocks

    @property
    def position(self) -> int:
        """Positions that every span has seen."""
        return self._flow.session.log.position

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def chain(self) -> list[tuple[Span, str | None]]:
        """Each span and the peer that serves it now; None where it is being, or must be, rebuilt."""
        return self._flow.spans

    @property
    def avoided(self) -> frozenset[str]:
        """Peers that would not be chosen now, after what this session and others of the client have met."""
        return self._flow.session.router.avoided

    @property
    def history_bytes(self) -> int:
        """Client memory held for recovery."""
        return self._flow.history_bytes

    @property
    def standby_cost(self) -> StandbyCost:
        """What warm standbys have cost so far."""
        return self._flow.standby_cost

    def step_end(self, step: int) -> int:
        """Position after the step with this index."""
        return self._flow.session.log[step].end

    def history_of(self, start_block: int, step: int) -> torch.Tensor | None:
        """What a span that now begins at ``start_block`` has been sent up to and with a step,
        [batch, positions, hidden]; None if no span begins there, or if rows moved after that step and the span's
        history was made anew since.
        """
        return self._flow.history_of(start_block, step + 1)

    @property
    def last_token_id(self) -> torch.Tensor | None:
        return self.output_ids[:, -1:] if self.output_ids is not None else None

    def step(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        hypo_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the next tokens through all blocks.

        :param inputs: [batch, tokens, hidden], at least one row; without tokens nothing is done
        :param prompts: deep prompts, added to the first tokens of each block's inputs,
            [blocks, batch or 1, prompt tokens, hidden]
        :param hypo_ids: int64 [batch], the cache row that each row continues (beam search)
        :returns: [batch, tokens, hidden], on the device and in the dtype of ``inputs``
        :raises ValueError: if an argument does not fit; nothing was sent then
        :raises RecoveryFailed: if blocks stay unserved for ``recovery_s``; the session can go on later
        :raises RequestRejected: if the servers refuse the request itself
        :raises HistoryTooLarge: if the histories would outgrow ``history_max_bytes``; nothing was sent then
        """
        step = self._checked(inputs, prompts, hypo_ids)
        if inputs.shape[1] == 0:
            return inputs
        before = self.position
        try:
            outputs = self._run(self._flow.step(step))
        except BaseException:
            # an interrupt may come too late to stop the step; what the caller never saw must not count
            self._run(self._flow.rewind(before))
            raise
        return outputs.to(device=inputs.device, dtype=inputs.dtype)

    def rewind(self, position: int) -> None:
        """Forget everything from ``position`` on (which must lie between two steps)."""
        self._run(self._flow.rewind(position))

    def close(self) -> None:
        """End the session; takes at most ``close_s`` even if servers hang."""
        if not self._closed:
            self._closed = True
            self._run(self._flow.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # May run on any thread, the event loop's own included: it must not wait for anything.
        flow = getattr(self, "_flow", None)
        if flow is not None and not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                RemoteExpertWorker.run_coroutine(_drop(flow), return_future=True)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` on the worker's loop; an interrupt here cancels it there."""
        future: Future[T] = RemoteExpertWorker.run_coroutine(work, return_future=True)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _checked(
        self, inputs: torch.Tensor, prompts: torch.Tensor | None, hypo_ids: torch.Tensor | None
    ) -> StepInput:
        if self._closed:
            raise RuntimeError("the session is closed")
        if inputs.ndim != 3 or inputs.shape[2] != self._hidden_size or not inputs.is_floating_point():
            raise ValueError(
                f"inputs must be floating [batch, tokens, {self._hidden_size}], "
                f"got {inputs.dtype} {tuple(inputs.shape)}"
            )
        batch, n_tokens = inputs.shape[:2]
        if batch == 0:
            raise ValueError(f"the batch size must be 1 or more, got inputs {tuple(inputs.shape)}")
        if self.position and batch != self._flow.session.batch_size:
            raise ValueError(
                f"the session began with batch size {self._flow.session.batch_size}, got {batch}"
            )
        if self.position + n_tokens > self._max_length:
            raise ValueError(
                f"{self.position} positions and {n_tokens} more exceed max_length {self._max_length} of this session"
            )
        given_prompts = prompts is not None and prompts.numel() > 0
        given_hypo_ids = hypo_ids is not None and hypo_ids.numel() > 0
        return StepInput(
            inputs.detach().cpu(),
            self._checked_prompts(prompts, batch, n_tokens)
            if given_prompts and prompts is not None
            else None,
            _checked_hypo_ids(hypo_ids, batch) if given_hypo_ids and hypo_ids is not None else None,
        )

    def _checked_prompts(self, prompts: torch.Tensor, batch: int, n_tokens: int) -> torch.Tensor:
        fits = (
            prompts.ndim == 4
            and prompts.shape[0] == self.num_blocks
            and prompts.shape[1] in (1, batch)
            and prompts.shape[2] <= n_tokens
            and prompts.shape[3] == self._hidden_size
        )
        if not fits:
            raise ValueError(
                f"deep prompts must be [{self.num_blocks}, 1 or {batch}, at most {n_tokens}, {self._hidden_size}], "
                f"got {tuple(prompts.shape)}"
            )
        return prompts.detach().cpu().clone()  # needed for replays, whatever becomes of the caller's tensor


def _checked_hypo_ids(hypo_ids: torch.Tensor, batch: int) -> np.ndarray:
    ids = hypo_ids.cpu()
    if ids.dtype != torch.int64 or ids.shape != (batch,) or int(ids.min()) < 0 or int(ids.max()) >= batch:
        raise ValueError(
            f"hypo_ids must be int64 [{batch}] with rows in [0, {batch}), got {ids.dtype} {ids.tolist()}"
        )
    return ids.numpy().copy()


async def _make_flow(
    manager: RemoteSequenceManager,
    settings: RecoverySettings,
    max_length: int,
    on_event: EventHandler | None,
    on_opening: EventHandler | None,
) -> Flow:
    """Built on the loop it will live on."""
    session = Session(Router(manager, settings), settings, max_length)
    session.push_outputs = manager.config.use_server_to_server
    return Flow(session, on_event, on_opening)


async def _drop(flow: Flow) -> None:
    flow.drop()
    await asyncio.sleep(0)
