"""The best rule of earlier trials: what it moves for, block by block from its description."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.greedy_soft_min import GreedySoftMin
from swarmlab.placement.policy import Server
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

RNG = np.random.default_rng(0)


def soft_minimum(values: list[float]) -> float:
    beta = 30 * len(values) / sum(values)
    return -math.log(sum(math.exp(-beta * value) for value in values) / len(values)) / beta


def check(*records: ServerRecord, seconds_per_block: float, n_blocks: int = 4) -> Span | None:
    """Where the first of the servers moves; None if it stays."""
    first = records[0]
    load = LoadCost(s_per_block=seconds_per_block)
    server = Server(first.peer_id, first.span.length, first.throughput_tps, first.span, load)
    decision = GreedySoftMin().reconsider(SwarmView(n_blocks, records), server, None, RNG)
    return decision.target if decision.moved else None


def crowd(*, strong: float) -> list[ServerRecord]:
    # the left half has 1 + strong, the right half 2
    held = (("a", Span(0, 2), 1.0), ("b", Span(0, 2), strong), ("c", Span(2, 4), 2.0))
    return [ServerRecord(*one) for one in held]


def test_it_moves_at_once_to_where_the_soft_minimum_gains_most():
    assert check(*crowd(strong=4.0), seconds_per_block=1.0) == Span(2, 4)


def test_a_move_must_be_worth_more_than_what_is_lost_and_the_price_of_loading():
    # by hand: 5, 5, 2, 2 become 4, 4, 3, 3; nothing is lost of the weakest, 2, while the left has 4
    gain = soft_minimum([4.0, 4.0, 3.0, 3.0]) - soft_minimum([5.0, 5.0, 2.0, 2.0])
    # half of the price of two blocks: the mean is the same before and after
    worth_per_block = gain * 600 / (0.03 * 3.5) / 2
    assert check(*crowd(strong=4.0), seconds_per_block=0.99 * worth_per_block) == Span(2, 4)
    # it could still go half the way for half the price, but that gains nothing for block 3
    assert check(*crowd(strong=4.0), seconds_per_block=1.01 * worth_per_block) != Span(2, 4)


def test_what_the_served_bottleneck_loses_counts():
    # 3, 3, 1, 1 become 2, 2, 2, 2, but the weakest has nothing while the only server of the right is not there yet
    held = [("a", Span(0, 2), 1.0), ("b", Span(0, 2), 2.0), ("c", Span(2, 4), 1.0)]
    serving = [ServerRecord(*one) for one in held]
    assert check(*serving, seconds_per_block=10.0) == Span(2, 4)
    # b only loads: until it serves, a is all there is on the left
    loading = [serving[0], ServerRecord(*held[1], ServerState.JOINING), serving[2]]
    assert check(*loading, seconds_per_block=10.0) == Span(2, 4)
    assert check(*loading, seconds_per_block=300.0) is None


def test_those_who_load_count_as_arrived():
    arriving = ServerRecord("d", Span(2, 4), 3.0, ServerState.JOINING)
    assert check(*crowd(strong=4.0), arriving, seconds_per_block=1.0) is None


def test_a_server_that_vanished_is_believed_for_ninety_seconds():
    rule, (a, b, c) = GreedySoftMin(), crowd(strong=1.0)
    server = Server("a", 2, 1.0, Span(0, 2), LoadCost(s_per_block=1.0))
    decision = rule.reconsider(SwarmView(4, (a, b, c), 0.0), server, None, RNG)
    moved = []
    for now_s in (10.0, 99.0, 101.0):
        decision = rule.reconsider(SwarmView(4, (a, b), now_s), server, decision.memory, RNG)
        moved.append(decision.moved)
    assert moved == [False, False, True]


def test_a_joining_server_goes_where_the_soft_minimum_gains_most():
    view = SwarmView(4, tuple(crowd(strong=4.0)))
    assert GreedySoftMin().choose(view, Server("new", 2, 1.0), RNG).target == Span(2, 4)


def test_a_server_without_a_span_of_this_model_is_refused():
    view = SwarmView(4, tuple(crowd(strong=4.0)))
    with pytest.raises(BadInput, match=r"server\.span"):
        GreedySoftMin().reconsider(view, Server("a", 2, 1.0, Span(3, 5)), None, RNG)
