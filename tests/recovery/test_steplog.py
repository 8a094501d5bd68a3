"""The lazy log of reordered rows equals a cache that is reordered at every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.recovery.steplog import StepLog, row_groups


@st.composite
def histories(draw):
    """Steps of a batch of up to 4 rows: (tokens, hypo_ids or None)."""
    batch = draw(st.integers(1, 4))
    rows = st.lists(st.integers(0, batch - 1), min_size=batch, max_size=batch)
    steps = draw(st.lists(st.tuples(st.integers(1, 5), st.none() | rows), min_size=1, max_size=8))
    return batch, steps


def log_of(steps):
    log = StepLog()
    for n_tokens, rows in steps:
        log.append(n_tokens, hypo_ids=None if rows is None else np.array(rows))
    return log


def simulate(batch, steps):
    """A cache as a server keeps it, after every step: [batch, positions] of distinct entries."""
    cache = np.empty((batch, 0), dtype=np.int64)
    caches, fresh = [cache], 0
    for n_tokens, rows in steps:
        if rows is not None:
            cache = cache[rows]
        new = fresh + np.arange(batch * n_tokens).reshape(batch, n_tokens)
        fresh += batch * n_tokens
        cache = np.concatenate([cache, new], axis=1)
        caches.append(cache)
    return caches


def stored(batch, steps, base_steps):
    """What a history holds: a base in the order after ``base_steps`` steps, then each step in its own order."""
    caches = simulate(batch, steps)
    parts = [caches[base_steps]]
    for before, after in zip(caches[base_steps:], caches[base_steps + 1 :], strict=False):
        parts.append(after[:, before.shape[1] :])
    return np.concatenate(parts, axis=1)


@given(histories(), st.data())
def test_row_groups_restore_the_order_of_a_reordered_cache(history, data):
    batch, steps = history
    n_steps = data.draw(st.integers(0, len(steps)))
    base_steps = data.draw(st.integers(0, n_steps))
    log, caches = log_of(steps), simulate(batch, steps)
    inputs = stored(batch, steps, base_steps)
    groups = row_groups(log, base_steps, caches[base_steps].shape[1], n_steps)
    restored = [
        inputs[:, group.start : group.end]
        if group.rows is None
        else inputs[group.rows, group.start : group.end]
        for group in groups
    ]
    got = np.concatenate([np.empty((batch, 0), dtype=np.int64), *restored], axis=1)
    np.testing.assert_array_equal(got, caches[n_steps])


@given(histories())
def test_groups_cover_all_positions_once_and_in_order(history):
    _, steps = history
    log = log_of(steps)
    groups = row_groups(log, 0, 0, len(steps))
    assert [group.start for group in groups] == [0, *(group.end for group in groups[:-1])]
    assert groups[-1].end == log.position


def test_rows_that_stay_cost_nothing():
    log = log_of([(5, None), (1, [0, 1, 2]), (1, None)])
    assert not log.reorders_between(0, 3)
    groups = row_groups(log, 0, 0, 3)
    assert [(group.start, group.end, group.rows) for group in groups] == [(0, 7, None)]


@given(st.lists(st.integers(1, 5), max_size=8), st.integers(0, 50))
def test_steps_before_counts_whole_steps_only(lengths, position):
    log = log_of([(n_tokens, None) for n_tokens in lengths])
    ends = [0, *np.cumsum(lengths).tolist()]
    if position in ends:
        assert log.steps_before(position) == ends.index(position)
    else:
        with pytest.raises(ValueError, match="not between two steps"):
            log.steps_before(position)


def test_truncate_forgets_the_last_steps():
    log = log_of([(3, None), (2, [1, 0]), (1, None)])
    log.truncate(1)
    assert (len(log), log.position) == (1, 3)
    assert not log.reorders_between(0, len(log))
