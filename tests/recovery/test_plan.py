"""Which requests a replay consists of, and what becomes of spans whose history cannot be used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.recovery.plan import merge_unusable, replay_slices
from swarmlab.recovery.steplog import StepLog
from swarmlab.types import Span


@st.composite
def logs(draw):
    log = StepLog()
    for n_tokens in draw(st.lists(st.integers(1, 30), min_size=1, max_size=8)):
        log.append(n_tokens, prompt_tokens=draw(st.just(0) | st.integers(1, n_tokens)))
    return log


@given(logs(), st.integers(1, 8), st.integers(1, 64), st.data())
def test_slices_of_a_replay(log, batch, max_tokens, data):
    n_steps = data.draw(st.integers(1, len(log)))
    first = data.draw(st.integers(0, n_steps - 1))
    start = log[first].start
    slices = replay_slices(log, start, n_steps, batch, max_tokens)

    # every position once, in order
    assert [piece.start for piece in slices] == [start, *(piece.end for piece in slices[:-1])]
    assert slices[-1].end == log[n_steps - 1].end
    assert all(piece.n_tokens > 0 for piece in slices)
    # every step with deep prompts begins a request, and its prompts travel once, with that request
    prompted = [index for index in range(first, n_steps) if log[index].prompt_tokens]
    assert [piece.prompt_step for piece in slices if piece.prompt_step is not None] == prompted
    for piece in slices:
        prompt_tokens = 0
        if piece.prompt_step is not None:
            assert piece.start == log[piece.prompt_step].start
            prompt_tokens = log[piece.prompt_step].prompt_tokens
            assert piece.n_tokens >= prompt_tokens
        # no request is larger than allowed, unless its prompts alone are
        assert piece.n_tokens <= max(1, max_tokens // batch, prompt_tokens)


def test_a_batch_of_three_with_750_positions_stays_below_the_limit_of_petals():
    log = StepLog()
    log.append(750)
    pieces = replay_slices(log, 0, 1, 3, 1024)
    assert [3 * piece.n_tokens for piece in pieces] == [1023, 1023, 204]


def test_steps_without_prompts_share_a_request():
    log = StepLog()
    for _ in range(100):
        log.append(1)
    assert len(replay_slices(log, 0, 100, 1, 1024)) == 1


def test_nothing_to_replay():
    assert replay_slices(StepLog(), 0, 0, 2, 1024) == ()


def test_a_replay_cannot_begin_inside_a_step():
    log = StepLog()
    log.append(10)
    with pytest.raises(ValueError, match="between two steps"):
        replay_slices(log, 4, 1, 1, 1024)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_unusable_spans_join_the_one_before(lengths, usable):
    usable = {0} | usable
    spans, start = [], 0
    for length in lengths:
        spans.append(Span(start, start + length))
        start += length
    merged = merge_unusable(spans, usable)
    assert [span.start for span, _ in merged] == [0, *(span.end for span, _ in merged[:-1])]
    assert merged[-1][0].end == start
    # each starts where its history starts, and all usable histories are kept
    assert [spans[source].start for _, source in merged] == [span.start for span, _ in merged]
    assert [source for _, source in merged] == [index for index in range(len(spans)) if index in usable]


def test_the_first_span_has_the_inputs_of_the_client_itself():
    with pytest.raises(ValueError, match="first span"):
        merge_unusable([Span(0, 2), Span(2, 4)], {1})
