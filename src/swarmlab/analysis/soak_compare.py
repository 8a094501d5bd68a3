"""A session of a soak against the same one without a swarm, step by step. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from swarmlab.analysis import metrics


@dataclass
class Trace:
    """What every step of a session gave.

    :param hidden: per step [rows, tokens, hidden]
    :param token_ids: per step the predicted id of each row
    :param sequences: what petals' own generate returned, if it was used
    :param fed: per step the arguments of the session's ``step``, if they were kept
    """

    hidden: list[np.ndarray]
    token_ids: list[np.ndarray]
    sequences: np.ndarray | None
    fed: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)


def compare(trace: Trace, plain: Trace, tolerance: float) -> dict[str, Any]:
    """A session against the same one without a swarm, as far as it came.

    :param tolerance: largest difference of hidden states of size 1
    :returns: ``tokens``, ``tokens_expected``, ``tokens_wrong``, ``max_abs_diff`` (None if shapes differ),
        ``allowed_diff``, ``identical`` (the whole of it is right)
    """
    steps = list(zip(trace.token_ids, plain.token_ids, strict=False))
    wrong = sum(wrong_ids(got, right) for got, right in steps)
    if trace.sequences is not None and plain.sequences is not None:
        wrong += wrong_ids(trace.sequences, plain.sequences)
    sizes = [metrics.root_mean_square(hidden) for hidden in plain.hidden]
    allowed = tolerance * max(1.0, *sizes, 1.0)
    diffs = [metrics.max_abs_diff(got, right) for got, right in zip(trace.hidden, plain.hidden, strict=False)]
    known = [diff for diff in diffs if diff is not None]
    diff = max(known, default=None) if len(known) == len(diffs) else None
    complete = len(trace.token_ids) == len(plain.token_ids)
    return {
        "tokens": sum(ids.size for ids in trace.token_ids),
        "tokens_expected": sum(ids.size for ids in plain.token_ids),
        "tokens_wrong": wrong,
        "max_abs_diff": diff,
        "allowed_diff": allowed,
        "identical": complete and wrong == 0 and diff is not None and diff <= allowed,
    }


def compare_forced(trace: Trace, forced: Trace, tolerance: float) -> dict[str, Any]:
    """A session against the plain model that was fed the very same inputs, step by step: for a text that took another
    way than the plain model's own.

    Where hidden states are equal within the tolerance and predicted ids are not, the two best were that close: a tie,
    and no wrong token. Without a tie another text is wrong, whatever the hidden states say.

    :param forced: of the plain model with the inputs of ``trace``; without sequences
    :returns: as ``compare``, and ``ties``
    """
    found = compare(Trace(trace.hidden, trace.token_ids, None), forced, tolerance)
    right = found["max_abs_diff"] is not None and found["max_abs_diff"] <= found["allowed_diff"]
    ties = found["tokens_wrong"] if right else 0
    return {**found, "ties": ties, "tokens_wrong": found["tokens_wrong"] - ties, "identical": ties > 0}


def wrong_ids(got: np.ndarray, right: np.ndarray) -> int:
    """Ids that differ; all that should be there where some are missing."""
    return int((got != right).sum()) if got.shape == right.shape else int(right.size)
