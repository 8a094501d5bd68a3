"""What a server that joins may believe of the swarm."""

from __future__ import annotations

import pytest

from swarmlab.bridge.serving.first_look import LONGEST_WAIT_S, MOST_LOOKS, fullest, is_settled, wait_s
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView


def seen(*spans, state=ServerState.ONLINE):
    return SwarmView(4, tuple(ServerRecord(f"p{i}", Span(*span), 1.0, state) for i, span in enumerate(spans)))


EMPTY, LEFT, RIGHT, FULL = seen(), seen((0, 2)), seen((2, 4)), seen((0, 2), (2, 4))


@pytest.mark.parametrize("looks", [
    [FULL],
    [None, FULL],
    [EMPTY, LEFT, FULL],
    [LEFT, LEFT],
    [None, EMPTY, LEFT, LEFT],
    [EMPTY, EMPTY, EMPTY],
    [seen((0, 4), state=ServerState.JOINING)],
])  # fmt: skip
def test_what_shows_every_block_or_the_same_again_is_believed(looks):
    assert is_settled(looks)


@pytest.mark.parametrize("looks", [
    [],
    [None],
    [FULL, None],
    [LEFT],
    [LEFT, RIGHT],
    [LEFT, None, LEFT],
    [EMPTY, EMPTY],
    [EMPTY, EMPTY, None, EMPTY],
    [LEFT, EMPTY],
])  # fmt: skip
def test_what_was_seen_once_may_be_what_a_slow_dht_left(looks):
    assert not is_settled(looks)


def test_if_it_does_not_settle_the_fullest_of_the_last_looks_counts():
    assert fullest([LEFT, None, RIGHT, EMPTY]) == RIGHT
    assert fullest([None]) is None


def test_all_looks_together_take_seconds():
    waits = [wait_s(number) for number in range(1, MOST_LOOKS)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT_S
    assert sum(waits) < 10
