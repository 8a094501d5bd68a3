"""What a move is worth, block by block from the definition, and who goes first."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from swarmlab.placement.cost import LoadCost
from swarmlab.placement.layout import layout_of
from swarmlab.placement.moves import Price, moves, rank
from swarmlab.placement.policy import Server
from swarmlab.placement.situation import situation
from swarmlab.placement.softmin import SHARPNESS, sharpness, utilities
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView
from tests.placement.views import random_view


def soft_minimum(values: list[float], beta: float) -> float:
    floor = min(values)
    return floor - math.log(sum(math.exp(-beta * (v - floor)) for v in values) / len(values)) / beta


def plus(values: list[float], span: Span, rate: float) -> list[float]:
    return [value + rate * (block in span) for block, value in enumerate(values)]


def test_the_soft_minimum_of_every_start_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n_blocks = int(rng.integers(1, 12))
        width = int(rng.integers(1, n_blocks + 1))
        values = rng.integers(0, 3, n_blocks).astype(np.float64) * float(rng.lognormal(0, 3))
        rate = float(rng.lognormal(0, 3))
        beta = SHARPNESS / (values.mean() + rate)
        found = utilities(values, rate, width, beta)
        expected = [
            soft_minimum(plus(values.tolist(), Span(s, s + width), rate), beta)
            for s in range(n_blocks - width + 1)
        ]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 / beta)


def test_the_soft_minimum_sharpens_with_the_root_of_the_number_of_servers():
    assert sharpness(1.0, 1.0) == sharpness(0.0, 0.0) == SHARPNESS
    assert sharpness(1_000.0, 1.0) == pytest.approx(10 * math.sqrt(1_000.0))
    assert sharpness(4_000.0, 1.0) == pytest.approx(2 * sharpness(1_000.0, 1.0))


def test_the_soft_minimum_prefers_the_needy_among_tied_blocks():
    # blocks 2 and 5 are both empty: covering either leaves the minimum at 0, the soft minimum sees the difference
    values = np.array([5.0, 5.0, 0.0, 5.0, 5.0, 0.0])
    reached = utilities(values, 5.0, 2, 6.0)
    assert sorted(np.argsort(-reached)[:3].tolist()) == [1, 2, 4]


@pytest.mark.parametrize("keeps_overlap", [True, False])
def test_every_move_is_priced_from_its_definition(keeps_overlap: bool):
    rng = np.random.default_rng(1)
    load = LoadCost(s_per_block=3.0, s_per_move=2.0, keeps_overlap=keeps_overlap)
    price = Price(horizon_s=100.0, per_load=0.05, per_load_most=0.1)
    for _ in range(200):
        view = random_view(rng, max_blocks=10, max_servers=8)
        record = view.servers[rng.integers(len(view.servers))]
        old, width = record.span, record.span.length
        server = Server(record.peer_id, width, record.throughput_tps, old, load)
        seen = situation(view, server.peer_id, None, None)
        rate = min(server.throughput_tps, seen.cap_tps)
        options = moves(seen, server, old, price)
        committed, serving = seen.committed_tps.tolist(), seen.serving_tps.tolist()
        mean = sum(plus(committed, old, rate)) / view.n_blocks
        rates = [
            min(one.throughput_tps, seen.cap_tps)
            for one in view.servers
            if one.state is not ServerState.OFFLINE
        ]
        grain = sum(r * r for r in rates) / sum(rates) if sum(rates) > 0 else 0.0
        complete = all(n + (block in old) > 0 for block, n in enumerate(seen.committed))
        toll_tps = min(0.05 * mean, 0.1 * grain) if complete else 0.0
        served_now = min(plus(serving, old, rate))
        for start in range(view.n_blocks - width + 1):
            new = Span(start, start + width)
            kept = [block for block in old if keeps_overlap and block in new]
            meanwhile = [value + rate * (block in kept or new == old) for block, value in enumerate(serving)]
            lost_tps = served_now - min(meanwhile)
            load_s = load.reload_s(old, new)
            gain = 0.0
            if mean > 0:
                there, here = (soft_minimum(plus(committed, s, rate), SHARPNESS / mean) for s in (new, old))
                gain = there - here
            worth = gain * price.horizon_s - lost_tps * load_s - toll_tps * load_s
            assert options.worth[start] == pytest.approx(worth, rel=1e-6, abs=1e-6 * (1 + mean))
            dropped = [block for block in old if block not in kept and new != old]
            assert options.safe[start] == all(seen.staying[block] > 0 for block in dropped)
            assert options.blocks_loaded[start] == load.blocks_loaded(old, new)
            assert options.swarm_tps(start) == pytest.approx(min(plus(committed, new, rate)))
            assert options.completes(start) == all(
                n + (block in new) > 0 for block, n in enumerate(seen.committed)
            )
        assert options.worth[old.start] == 0.0


def test_of_near_equal_moves_the_one_that_loads_least_is_best():
    # 4:8 and 2:6 both cover the empty blocks 4 and 5; the second loads half as much
    others = (ServerRecord("b", Span(0, 4), 10.0), ServerRecord("c", Span(6, 8), 10.0))
    server = Server("a", 4, 1.0, Span(0, 4), LoadCost(s_per_block=1e-9))
    seen = situation(SwarmView(8, (ServerRecord("a", Span(0, 4), 1.0), *others)), "a", None, None)
    assert moves(seen, server, Span(0, 4), Price()).best() == Span(2, 6)


def test_a_shunned_span_is_not_chosen():
    view = SwarmView(4, (ServerRecord("a", Span(0, 2), 1.0), ServerRecord("b", Span(0, 2), 1.0)))
    seen = situation(view, "a", None, None)
    options = moves(seen, Server("a", 2, 1.0, Span(0, 2)), Span(0, 2), Price())
    assert options.best() == Span(2, 4)
    assert options.best(shunned=(Span(2, 4),)) != Span(2, 4)


def herd(n: int, **first: object) -> SwarmView:
    fields = {"peer_id": "p000", "span": Span(0, 4), "throughput_tps": 1.0} | first
    rest = [ServerRecord(f"p{i:03d}", Span(0, 4), 1.0) for i in range(1, n)]
    return SwarmView(8, (ServerRecord(**fields), *rest, ServerRecord("z", Span(4, 8), 1.0)))  # type: ignore[arg-type]


def ranks(view: SwarmView) -> list[int]:
    found = []
    for record in view.servers[:-1]:
        server = Server(record.peer_id, record.span.length, record.throughput_tps, record.span)
        seen = situation(view, server.peer_id, None, None)
        found.append(rank(layout_of(view), seen, server, record.span, Price(), 100))
    return found


def test_equal_servers_go_in_the_order_of_their_names():
    assert ranks(herd(6)) == [0, 1, 2, 3, 4, 5]


def test_a_server_with_more_to_gain_goes_first():
    assert ranks(herd(6, peer_id="p009", throughput_tps=1.5))[-1] == 0


def test_of_equal_servers_the_one_that_loads_least_goes_first():
    # blocks 6 and 7 are in need: "near" shifts by two, the others of the same throughput and width load all four
    spans = {"a": Span(0, 4), "b": Span(0, 4), "near": Span(2, 6), "z": Span(0, 8)}
    view = SwarmView(8, tuple(ServerRecord(name, span, 1.0) for name, span in spans.items()))
    assert ranks(view) == [1, 2, 0]


@pytest.mark.parametrize("keeps_overlap", [True, False])
def test_rivals_are_those_whose_best_move_is_worth_more(keeps_overlap: bool):
    rng = np.random.default_rng(3)
    load = LoadCost(s_per_block=3.0, s_per_move=2.0, keeps_overlap=keeps_overlap)
    for _ in range(100):
        drawn = random_view(rng, max_blocks=10, max_servers=8).servers
        n_blocks = max(one.span.end for one in drawn)
        # where all load nothing is served that could be lost, which the ranking leaves out
        loading, view = (
            SwarmView(n_blocks, tuple(replace(one, state=state, intent=None) for one in drawn))
            for state in (ServerState.JOINING, ServerState.ONLINE)
        )
        layout, price = layout_of(view), Price(horizon_s=100.0)
        worth = []
        for i, record in enumerate(layout.records):
            seen = situation(loading, record.peer_id, None, None)
            server = Server(record.peer_id, record.span.length, float(seen.rates_tps[i]), record.span, load)
            unserved = moves(seen, server, record.span, price)
            worth.append(max(0.0, float(unserved.worth.max())))
        for i, record in enumerate(layout.records):
            seen = situation(view, record.peer_id, None, None)
            server = Server(record.peer_id, record.span.length, float(seen.rates_tps[i]), record.span, load)
            found = rank(layout, seen, server, record.span, price, 100)
            noise = 1e-6 * (1e-9 + max(worth))
            surely = sum(one > worth[i] + noise for j, one in enumerate(worth) if j != i and seen.movable[j])
            maybe = sum(one > worth[i] - noise for j, one in enumerate(worth) if j != i and seen.movable[j])
            assert surely <= found <= maybe


def test_loading_is_priced_by_the_mean_and_in_large_swarms_by_one_server():
    price = Price(per_load=0.03, per_load_most=0.2)
    assert price.toll_tps(10.0, 10.0) == pytest.approx(0.3)
    assert price.toll_tps(1000.0, 10.0) == pytest.approx(2.0)


def test_servers_that_load_go_after_nobody_else():
    assert ranks(herd(6, state=ServerState.JOINING))[1:] == [0, 1, 2, 3, 4]


def test_counting_rivals_ends_where_it_may():
    view = herd(6)
    last = view.servers[5]
    server = Server(last.peer_id, last.span.length, last.throughput_tps, last.span)
    seen = situation(view, server.peer_id, None, None)
    found = [rank(layout_of(view), seen, server, last.span, Price(), most) for most in (1, 3, 5, 6)]
    assert found == [1, 3, 5, 5]
