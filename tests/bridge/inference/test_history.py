"""A history gives back what a server's cache was made of, in today's row order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.bridge.inference.history import SpanHistory
from swarmlab.recovery.steplog import StepLog

HIDDEN, MAX_LENGTH = 2, 10**6


class Twin:
    """A history beside a plain tensor that is reordered and extended at every step, as a cache is."""

    def __init__(self, batch: int) -> None:
        self.log, self.history = StepLog(), SpanHistory()
        self._batch, self._fresh = batch, 0
        self.caches = [torch.empty(batch, 0, HIDDEN)]

    def step(self, n_tokens: int, rows: list[int] | None) -> None:
        n_numbers = self._batch * n_tokens * HIDDEN
        new = torch.arange(self._fresh, self._fresh + n_numbers).float().view(self._batch, n_tokens, HIDDEN)
        self._fresh += n_numbers
        self.log.append(n_tokens, hypo_ids=None if rows is None else np.array(rows))
        self.history.append(new, MAX_LENGTH)
        cache = self.caches[-1] if rows is None else self.caches[-1][rows]
        self.caches.append(torch.cat([cache, new], dim=1))

    def check(self) -> None:
        torch.testing.assert_close(
            self.history.inputs(self.log, len(self.log)) if len(self.log) else self.caches[0],
            self.caches[-1],
            rtol=0,
            atol=0,
        )


def rows(batch):
    return st.none() | st.lists(st.integers(0, batch - 1), min_size=batch, max_size=batch)


@given(st.data())
def test_inputs_in_todays_order_whatever_happens(data):
    """Steps, rewinds, and a new base as a replacement brings it."""
    batch = data.draw(st.integers(1, 3))
    twin = Twin(batch)
    base_steps = 0
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(("step", "step", "rewind", "rebase")))
        if what == "step":
            twin.step(data.draw(st.integers(1, 20)), data.draw(rows(batch)))
        elif what == "rewind":
            n_steps = data.draw(st.integers(0, len(twin.log)))
            moved = n_steps < base_steps and twin.log.reorders_between(n_steps, base_steps)
            assert twin.history.rewind(twin.log, n_steps) == (n_steps == 0 or not moved)
            if n_steps and moved:
                return  # the history cannot be used any more
            base_steps = min(base_steps, n_steps)
            twin.log.truncate(n_steps)
            del twin.caches[n_steps + 1 :]
        elif len(twin.log):
            base_steps = len(twin.log)
            twin.history = SpanHistory(twin.caches[-1].clone(), base_steps)
        twin.check()


@given(st.data())
def test_earlier_states_can_be_read_while_a_step_is_under_way(data):
    twin = Twin(2)
    for _ in range(data.draw(st.integers(1, 6))):
        twin.step(data.draw(st.integers(1, 5)), data.draw(rows(2)))
    n_steps = data.draw(st.integers(1, len(twin.log)))
    torch.testing.assert_close(twin.history.inputs(twin.log, n_steps), twin.caches[n_steps], rtol=0, atol=0)


def test_an_order_that_was_not_kept_is_not_made_up():
    twin = Twin(2)
    twin.step(3, None)
    twin.step(1, [1, 1])
    history = SpanHistory(twin.caches[-1].clone(), 2)
    with pytest.raises(ValueError, match="row order after 1 steps"):
        history.inputs(twin.log, 1)


def test_what_is_not_there_cannot_be_read():
    log = StepLog()
    log.append(5)
    with pytest.raises(ValueError, match="0 positions, 5 are wanted"):
        SpanHistory().inputs(log, 1)


def test_a_session_back_at_its_start_takes_another_batch_size():
    twin = Twin(3)
    twin.step(4, None)
    assert twin.history.rewind(twin.log, 0)
    assert twin.history.n_bytes == 0
    twin.history.append(torch.ones(1, 2, HIDDEN), MAX_LENGTH)
    twin.log.truncate(0)
    twin.log.append(2)
    assert twin.history.inputs(twin.log, 1).shape == (1, 2, HIDDEN)


@given(st.lists(st.sampled_from((torch.float16, torch.bfloat16, torch.float32)), min_size=2, max_size=20))
def test_no_number_loses_precision_when_servers_answer_in_different_types(dtypes):
    history, log, parts = SpanHistory(), StepLog(), []
    for index, dtype in enumerate(dtypes):
        part = torch.full((1, 1, HIDDEN), 1.0 + index / 3.0).to(dtype)
        history.append(part, MAX_LENGTH)
        log.append(1)
        parts.append(part.float())
    kept = history.inputs(log, len(dtypes)).float()
    torch.testing.assert_close(kept, torch.cat(parts, dim=1), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("base_tokens", [0, 100])
def test_memory_is_at_most_twice_the_inputs(dtype, base_tokens):
    batch, hidden = 3, 64
    token_bytes = batch * hidden * dtype.itemsize
    history = (
        SpanHistory(torch.zeros(batch, base_tokens, hidden, dtype=dtype), 1) if base_tokens else SpanHistory()
    )
    for _ in range(1000):
        history.append(torch.zeros(batch, 1, hidden, dtype=dtype), MAX_LENGTH)
        least = history.n_tokens * token_bytes
        assert least <= history.n_bytes <= max(2 * least, 16 * token_bytes)


def test_what_it_will_take_is_known_before_and_no_room_is_kept_beyond_the_longest_session():
    batch, hidden, longest = 3, 8, 300
    history = SpanHistory()
    for n_tokens in (40, *[1] * 259, 1):
        new = torch.zeros(batch, n_tokens, hidden)
        told = history.bytes_with(new, longest)
        history.append(new, longest)
        assert history.n_bytes == told
    assert history.n_tokens == longest
    assert history.n_bytes == batch * longest * hidden * 4  # of each position exactly what the span is sent


def test_appending_copies_each_position_a_bounded_number_of_times():
    history, moves = SpanHistory(), 0
    for _ in range(1000):
        before = history._data
        history.append(torch.zeros(1, 1, HIDDEN), MAX_LENGTH)
        moves += history.n_tokens if history._data is not before else 0
    assert moves <= 2 * history.n_tokens


def test_later_changes_of_a_callers_tensor_do_not_reach_the_history():
    history, log = SpanHistory(), StepLog()
    inputs = torch.ones(1, 2, HIDDEN)
    history.append(inputs, MAX_LENGTH)
    log.append(2)
    inputs.zero_()
    assert history.inputs(log, 1).eq(1).all()


def test_inputs_made_in_inference_mode_can_be_added_to_outside_it():
    history, log = SpanHistory(), StepLog()
    with torch.inference_mode():
        inputs = torch.ones(1, 16, HIDDEN)
    history.append(inputs, MAX_LENGTH)
    for _ in range(3):
        history.append(torch.ones(1, 1, HIDDEN), MAX_LENGTH)
    log.append(19)
    assert history.inputs(log, 1).eq(1).all()
