"""What the history says of one simulated server: its decisions and its states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmlab.types import Decision, Span


def decision_row(server: str, phase: str, decision: Decision, chosen: Span | None) -> dict[str, Any]:
    """A row of ``decisions``.

    :param phase: what the server was doing: join, check, choose or withdraw
    :param chosen: where it goes; None if it stays, or if that is not known yet
    """
    return {
        "server": server,
        "phase": phase,
        "policy": decision.policy,
        "moved": decision.moved,
        "old": None if decision.old is None else str(decision.old),
        "target": str(decision.target),
        "chosen": None if chosen is None else str(chosen),
        "intent": None if decision.intent is None else str(decision.intent.span),
        "reason": decision.reason,
        "predicted_gain": decision.predicted_tps - decision.expected_stay_tps,
    }


def state_row(server: str, state: str, held: Span | None, served: Span | None) -> dict[str, Any]:
    """A row of ``servers``: what it holds or loads, and what of that it serves."""
    return {
        "server": server,
        "state": str(state),
        "start": held.start if held else None,
        "end": held.end if held else None,
        "serving_start": served.start if served else None,
        "serving_end": served.end if served else None,
    }
