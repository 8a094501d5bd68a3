"""What happened to a session, step by step: enough to rebuild any span's attention cache.

A server applies the same three things at every step, in this order: it reorders the rows of its cache by
``hypo_ids`` (beam search), adds deep prompts to the first tokens of the step, and appends the step's tokens.
All spans of a session see the same steps, so the log is kept once per session; only the inputs differ by span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Step:
    """One step of a session.

    :param start: position of its first token
    :param n_tokens: how many positions it adds
    :param prompt_tokens: length of its deep prompts; 0 if it has none
    :param hypo_ids: int64 [batch], the cache row each row continues from; None if rows stay where they are
    """

    start: int
    n_tokens: int
    prompt_tokens: int = 0
    hypo_ids: np.ndarray | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        return self.start + self.n_tokens


class StepLog:
    """The steps of one session, in order; the last one may still be under way."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Step:
        return self._steps[index]

    @property
    def position(self) -> int:
        """Positions covered by all steps in the log."""
        return self._steps[-1].end if self._steps else 0

    def append(self, n_tokens: int, *, prompt_tokens: int = 0, hypo_ids: np.ndarray | None = None) -> Step:
        if hypo_ids is not None and np.array_equal(hypo_ids, np.arange(len(hypo_ids))):
            hypo_ids = None  # rows that stay where they are need no reordering later
        step = Step(self.position, n_tokens, prompt_tokens, hypo_ids)
        self._steps.append(step)
        return step

    def truncate(self, n_steps: int) -> None:
        """Forget the steps from ``n_steps`` on."""
        del self._steps[n_steps:]

    def steps_before(self, position: int) -> int:
        """How many whole steps end at or before ``position``.

        :raises ValueError: if ``position`` lies inside a step
        """
        n_steps = bisect_right(self._steps, position, key=lambda step: step.end)
        reached = self._steps[n_steps - 1].end if n_steps else 0
        if reached != position:
            raise ValueError(f"position {position} is not between two steps (the nearest is {reached})")
        return n_steps

    def reorders_between(self, first: int, last: int) -> bool:
        """Whether any step with index in ``[first, last)`` moved rows."""
        return any(step.hypo_ids is not None for step in self._steps[first:last])


@dataclass(frozen=True)
class RowGroup:
    """Positions ``[start, end)`` of a history and the stored row that each current row continues.

    ``rows`` is None where rows never moved.
    """

    start: int
    end: int
    rows: np.ndarray | None


def row_groups(log: StepLog, base_steps: int, base_tokens: int, n_steps: int) -> tuple[RowGroup, ...]:
    """How to bring a stored history into the row order that holds after ``n_steps`` steps.

    The first ``base_tokens`` positions are stored in the order that held after ``base_steps`` steps, every later
    position in the order of the step that added it. Walking back from the last step, the map from today's rows to
    the stored rows is the composition of the ``hypo_ids`` in between (a cache row depends on its own history only,
    so reordering inputs equals reordering caches).
    """
    groups: list[RowGroup] = []
    rows: np.ndarray | None = None
    for index in range(n_steps - 1, base_steps - 1, -1):
        step = log[index]
        groups.append(RowGroup(step.start, step.end, rows))
        if step.hypo_ids is not None:
            rows = step.hypo_ids if rows is None else step.hypo_ids[rows]
    if base_tokens:
        groups.append(RowGroup(0, base_tokens, rows))
    return tuple(_merge_equal(groups[::-1]))


def _merge_equal(groups: Sequence[RowGroup]) -> list[RowGroup]:
    merged: list[RowGroup] = []
    for group in groups:
        if merged and merged[-1].rows is group.rows:
            merged[-1] = RowGroup(merged[-1].start, group.end, group.rows)
        else:
            merged.append(group)
    return merged
