"""Rows of the history that our server tells. No petals here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmlab.types import Decision, Span


def decision_row(phase: str, decision: Decision) -> dict[str, Any]:
    """
    :param phase: ``join`` or ``check``
    """
    moved = decision.moved and decision.target != decision.old
    return {
        "phase": phase,
        "policy": decision.policy,
        "moved": moved,
        "old": None if decision.old is None else str(decision.old),
        "target": str(decision.target),
        "chosen": str(decision.target) if moved else None,
        "intent": None if decision.intent is None else str(decision.intent.span),
        "reason": decision.reason,
        "predicted_gain": decision.predicted_tps - decision.expected_stay_tps,
    }


def state_row(state: str, peer: str, span: Span | None, modules: Mapping[int, Any]) -> dict[str, Any]:
    """
    :param state: ``online``, ``damaged`` (a part of the span is missing) or ``offline``
    :param modules: by block; the row has what identifies them, so that a reader sees which ones have stayed
    """
    return {
        "state": state,
        "peer": peer,
        "start": None if span is None else span.start,
        "end": None if span is None else span.end,
        "modules": {block: id(module) for block, module in modules.items()},
    }
