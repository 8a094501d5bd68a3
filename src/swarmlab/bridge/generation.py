"""Makes a petals model survive failures without further ado: ``make_fault_tolerant(model)``.

model = AutoDistributedModelForCausalLM.from_pretrained(...)
make_fault_tolerant(model)
model.generate(inputs, max_new_tokens=100)  # any server may fail meanwhile
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from petals.client.remote_generation import _skipped_tokens

from swarmlab.bridge.inference.repairs import EventHandler
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.recovery.settings import RecoverySettings


def make_fault_tolerant(
    model: Any, *, settings: RecoverySettings | None = None, on_event: EventHandler | None = None
) -> Any:
    """Have a petals causal language model use FaultTolerantSession for all its inference sessions.

    The petals package is not changed, only this object: its ``inference_session`` and ``generate``.

    :param model: from petals' AutoDistributedModelForCausalLM
    :param on_event: told of every recovery
    :returns: the same model
    """
    blocks = model.transformer.h

    @contextmanager
    def inference_session(*, max_length: int) -> Iterator[FaultTolerantSession]:
        manager = blocks.sequence_manager
        new = FaultTolerantSession(manager, max_length, settings=settings, on_event=on_event)
        with new as session, blocks.use_session(session):
            yield session

    blocks.inference_session = inference_session
    model.generate = atomic_generate(model)
    return model


def atomic_generate(model: Any) -> Any:
    """petals' ``generate`` that leaves its session as it was if it raises.

    Otherwise the session would have seen tokens that its ``output_ids`` lack, and petals' counter of tokens to skip
    would leak into the next call, even of another session: both give wrong tokens later.
    """
    original = model.generate

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        session = kwargs.get("session") or model.active_session
        kept = isinstance(session, FaultTolerantSession)
        before = (session.position, session.output_ids) if kept else None
        try:
            return original(*args, **kwargs)
        except BaseException:
            _skipped_tokens.set(0)
            if before is not None:
                session.rewind(before[0])
                session.output_ids = before[1]
            raise

    return generate
