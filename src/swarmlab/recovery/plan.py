"""What to send again after a failure, and in which pieces. Indices only: no tensors, no clock, no network.

The invariants (docs/failover.md) in short: a span's history holds the inputs of exactly its blocks for every
position; after a replay the replacement has seen all of them once, in order; only the outputs of the newest
tokens travel on, and only to spans that have not seen them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from swarmlab.recovery.steplog import StepLog
from swarmlab.types import Span


@dataclass(frozen=True)
class Slice:
    """Positions ``[start, end)`` that travel in one request.

    :param prompt_step: index of the step whose deep prompts go with it; None if it has none
    """

    start: int
    end: int
    prompt_step: int | None = None

    @property
    def n_tokens(self) -> int:
        return self.end - self.start


def replay_slices(
    log: StepLog, start: int, n_steps: int, batch_size: int, max_tokens: int
) -> tuple[Slice, ...]:
    """Cut positions ``[start, end of step n_steps)`` into requests.

    A server adds deep prompts to the *first* tokens of a request, so each step that has them begins one; a request
    holds at most ``max_tokens`` tokens over all rows (petals refuses more than its ``max_batch_size``), unless the
    prompts of its step alone are longer.

    :param start: where to begin; must lie between two steps
    :param n_steps: how many steps of the log are covered in all
    """
    first = log.steps_before(start)
    limit = max(1, max_tokens // batch_size)
    slices: list[Slice] = []
    for piece_start, piece_end, prompt_step in _pieces(log, first, n_steps):
        position, prompt = piece_start, prompt_step
        while position < piece_end:
            shortest = log[prompt].prompt_tokens if prompt is not None else 0
            end = min(piece_end, position + max(limit, shortest))
            slices.append(Slice(position, end, prompt))
            position, prompt = end, None
    return tuple(slices)


def _pieces(log: StepLog, first: int, n_steps: int) -> Iterator[tuple[int, int, int | None]]:
    """Maximal runs of steps in which only the first may have deep prompts."""
    index = first
    while index < n_steps:
        prompt_step = index if log[index].prompt_tokens else None
        start = log[index].start
        index += 1
        while index < n_steps and not log[index].prompt_tokens:
            index += 1
        yield start, log[index - 1].end, prompt_step


def merge_unusable(spans: Sequence[Span], usable: Collection[int]) -> list[tuple[Span, int]]:
    """Join each span whose own history is unusable to the span before it, whose history reaches it.

    :param spans: the chain, in order, without gaps
    :param usable: indices of the spans whose history can be used; the first must be among them
    :returns: (span, index of the history it starts from)
    """
    if spans and 0 not in usable:
        raise ValueError(
            "the history of the first span is what the client itself sent; it cannot be unusable"
        )
    merged: list[tuple[Span, int]] = []
    for index, span in enumerate(spans):
        if index in usable:
            merged.append((span, index))
        else:
            before, source = merged[-1]
            merged[-1] = (Span(before.start, span.end), source)
    return merged
