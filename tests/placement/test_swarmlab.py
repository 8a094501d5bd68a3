"""The swarmlab policy: announce, confirm, go; few at a time; never back and forth; never for nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.memory import Departure, Memory
from swarmlab.placement.policy import Server
from swarmlab.placement.problem import problem
from swarmlab.placement.search import good_placement
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.types import Decision, Intent, ServerRecord, Span, SwarmView
from tests.placement.play import Played, play
from tests.placement.views import random_view

RNG = np.random.default_rng(0)
# a large swarm (more than ten) with a weak right side
CROWD = tuple(ServerRecord(f"p{i:02d}", Span(0, 4), 1.0) for i in range(12))
LOPSIDED = SwarmView(8, (*CROWD, ServerRecord("z", Span(4, 8), 1.0)))


def at(view: SwarmView, seconds: float, *extra: ServerRecord) -> SwarmView:
    replaced = {record.peer_id for record in extra}
    kept = tuple(record for record in view.servers if record.peer_id not in replaced)
    return SwarmView(view.n_blocks, (*kept, *extra), seen_at_s=seconds)


def first(**changes: object) -> Server:
    return replace(Server("p00", 4, 1.0, Span(0, 4), LoadCost(s_per_block=5.0)), **changes)  # type: ignore[arg-type]


def announcing(decision: Decision, peer: str = "p00") -> ServerRecord:
    """What the swarm shows of a server once its announcement has spread."""
    return ServerRecord(peer, Span(0, 4), 1.0, intent=decision.intent)


def test_a_move_is_announced_then_confirmed_then_made():
    policy = Swarmlab(visible_after_s=30.0)
    wish = policy.reconsider(at(LOPSIDED, 100.0), first(), None, RNG)
    assert not wish.moved
    assert wish.intent == Intent(Span(4, 8), 100.0)
    assert wish.check_again_s == 10.0
    early = policy.reconsider(at(LOPSIDED, 110.0), first(), wish.memory, RNG)
    assert (early.moved, early.intent, early.check_again_s) == (False, wish.intent, 10.0)
    move = policy.reconsider(at(LOPSIDED, 115.0, announcing(wish)), first(), early.memory, RNG)
    assert move.moved
    assert move.keeps_target
    assert (move.old, move.target, move.intent) == (Span(0, 4), Span(4, 8), None)
    assert (move.expected_stay_tps, move.predicted_tps) == (1.0, 2.0)
    assert move.memory.departures == (Departure(Span(0, 4), 115.0 + 4 * 5.0),)  # loaded by then
    assert move.memory.news_s == 15.0


def test_an_announcement_that_is_never_seen_is_believed_after_a_time():
    policy = Swarmlab(visible_after_s=30.0)
    decision = policy.reconsider(at(LOPSIDED, 100.0), first(), None, RNG)
    waits = []
    for now_s in (110.0, 125.0):
        decision = policy.reconsider(at(LOPSIDED, now_s), first(), decision.memory, RNG)
        assert not decision.moved
        waits.append(decision.check_again_s)
    assert waits == [10.0, 5.0]
    assert policy.reconsider(at(LOPSIDED, 130.0), first(), decision.memory, RNG).moved


def test_where_news_is_slow_turns_are_further_apart():
    later = first(peer_id="p02")
    slow = Swarmlab().reconsider(at(LOPSIDED, 0.0), later, Memory(news_s=45.0), RNG)
    quick = Swarmlab().reconsider(at(LOPSIDED, 0.0), later, Memory(news_s=1.0), RNG)
    assert (slow.check_again_s, quick.check_again_s) == (90.0, 20.0)


def test_moves_that_fill_a_gap_only_together_are_made_together():
    # 8:12 needs one and 4:8 another; whoever announced first need not wait until the other has loaded
    view = SwarmView(12, CROWD)
    policy = Swarmlab()
    wish = policy.reconsider(at(view, 0.0), first(), None, RNG)
    assert wish.intent is not None
    alone = policy.reconsider(at(view, 10.0, announcing(wish)), first(), wish.memory, RNG)
    assert not alone.moved
    assert "still have nobody" in alone.reason
    other = Span(8, 12) if wish.intent.span == Span(4, 8) else Span(4, 8)
    helper = ServerRecord("p05", Span(0, 4), 1.0, intent=Intent(other, 5.0))
    assert policy.reconsider(at(view, 10.0, announcing(wish), helper), first(), wish.memory, RNG).moved


def test_an_announced_move_is_withdrawn_when_the_gap_is_filled():
    policy = Swarmlab(visible_after_s=30.0)
    wish = policy.reconsider(at(LOPSIDED, 0.0), first(), None, RNG)
    helpers = [ServerRecord(f"y{i}", Span(4, 8), 3.0) for i in range(4)]
    after = policy.reconsider(at(LOPSIDED, 30.0, *helpers), first(), wish.memory, RNG)
    assert (after.moved, after.intent, after.memory.wish) == (False, None, None)


def test_a_rival_that_announced_earlier_takes_the_gap():
    policy = Swarmlab(visible_after_s=30.0)
    # ten more on the right: worth one move and no second
    view = SwarmView(8, (*CROWD, ServerRecord("z", Span(4, 8), 9.5)))
    wish = policy.reconsider(at(view, 10.0), first(), None, RNG)
    assert wish.intent == Intent(Span(4, 8), 10.0)
    later = ServerRecord("p05", Span(0, 4), 1.0, intent=Intent(Span(4, 8), 11.0))
    earlier = ServerRecord("p05", Span(0, 4), 1.0, intent=Intent(Span(4, 8), 9.0))
    assert policy.reconsider(at(view, 40.0, later), first(), wish.memory, RNG).moved
    assert not policy.reconsider(at(view, 40.0, earlier), first(), wish.memory, RNG).moved


def test_servers_further_back_wait_for_their_turn():
    policy = Swarmlab(visible_after_s=30.0)
    waits = []
    for i in range(8):
        decision = policy.reconsider(at(LOPSIDED, 0.0), first(peer_id=f"p{i:02d}"), None, RNG)
        assert (decision.intent is None) == (i > 0)
        waits.append(decision.check_again_s)
    assert waits[1:] == [10.0, 20.0, 30.0, 40.0, 50.0, 50.0, 50.0]


def test_a_span_left_lately_is_not_taken_again():
    policy = Swarmlab(visible_after_s=0.0)
    memory = Memory(departures=(Departure(Span(4, 8), 0.0),))
    soon = policy.reconsider(at(LOPSIDED, 3599.0), first(), memory, RNG)
    later = policy.reconsider(at(LOPSIDED, 3601.0), first(), memory, RNG)
    assert soon.target != Span(4, 8)
    assert (later.moved, later.target) == (True, Span(4, 8))


def test_reloading_that_takes_longer_than_it_is_worth_is_not_done():
    policy = Swarmlab(visible_after_s=0.0)
    assert policy.reconsider(LOPSIDED, first(), None, RNG).moved
    slow = policy.reconsider(LOPSIDED, first(load=LoadCost(s_per_block=10_000.0)), None, RNG)
    assert not slow.moved
    assert "worth its cost" in slow.reason


@pytest.mark.parametrize("n", [7, 60, 206, 1_000, 10_000])
def test_the_same_imbalance_is_worth_the_same_move_in_a_swarm_of_any_size(n: int):
    # a price that grew with the swarm's throughput made servers of 300 and more stay for ever
    crowd = [ServerRecord(f"p{i:05d}", Span(0, 4) if i < 0.7 * n else Span(4, 8), 1.0) for i in range(n)]
    view = SwarmView(8, tuple(crowd))
    decisions = [
        Swarmlab().reconsider(
            view, first(peer_id="p00000", load=LoadCost(s_per_block=s_per_block)), None, RNG
        )
        for s_per_block in (5.0, 10_000.0)
    ]
    assert decisions[0].memory.wish.target == Span(4, 8)
    assert decisions[1].memory.wish is None


def test_a_move_that_costs_nothing_waits_for_nothing():
    free = LoadCost(s_per_block=0.0)
    memory = Memory(departures=(Departure(Span(4, 8), 0.0),))
    move = Swarmlab().reconsider(at(LOPSIDED, 10.0), first(load=free), memory, RNG)
    assert (move.moved, move.target, move.intent) == (True, Span(4, 8), None)
    lonely = SwarmView(8, (*(replace(r, span=Span(1, 5)) for r in CROWD[1:]), CROWD[0], LOPSIDED.servers[-1]))
    alone = Swarmlab().reconsider(lonely, first(load=free), None, RNG)
    assert alone.target.start == 0  # block 0 has nobody else
    balanced = SwarmView(8, (*CROWD, *(ServerRecord(f"z{i:02d}", Span(4, 8), 1.0) for i in range(12))))
    assert not Swarmlab().reconsider(balanced, first(load=free), None, RNG).moved


def test_a_swarm_whose_moves_cost_nothing_comes_near_the_best_and_to_rest():
    for seed in range(2):
        crowd = [
            replace(s, load=LoadCost(s_per_block=0.0)) for s in servers(np.random.default_rng(seed), 25, 40)
        ]
        widths, rates = [s.n_blocks for s in crowd], [s.throughput_tps for s in crowd]
        best = good_placement(problem(40, widths, rates), np.random.default_rng(0), kicks=200).swarm_tps
        result = play(Swarmlab(), 40, crowd, seconds=1800.0)
        assert result.swarm_tps > 0.8 * best
        assert not result.unserved
        assert all(old != new for _, _, old, new in result.moves)
        assert not [move for move in result.moves if move[0] > 1200.0]


def test_a_plan_that_costs_more_than_it_gains_is_not_even_announced():
    small = SwarmView(8, (*CROWD[:4], ServerRecord("z", Span(4, 8), 1.0)))
    assert Swarmlab().reconsider(small, first(), None, RNG).reason.startswith("1 moves would raise 1 to 2")
    slow = Swarmlab().reconsider(small, first(load=LoadCost(s_per_block=10_000.0)), None, RNG)
    assert (slow.moved, slow.intent, slow.memory.wish) == (False, None, None)


def test_the_only_holder_of_a_block_stays():
    lonely = SwarmView(8, (*(replace(r, span=Span(1, 5)) for r in CROWD[1:]), CROWD[0], LOPSIDED.servers[-1]))
    decision = Swarmlab(visible_after_s=0.0).reconsider(lonely, first(), None, RNG)
    assert decision.target.start == 0  # block 0 has nobody else


def test_a_joining_server_goes_where_announced_moves_leave_most_need():
    newcomer = Server("new", 4, 1.0)
    view = SwarmView(
        12,
        (
            ServerRecord("a", Span(0, 4), 1.0),
            ServerRecord("b", Span(0, 4), 1.0, intent=Intent(Span(4, 8), 0.0)),
        ),
    )
    assert Swarmlab().choose(view, newcomer, RNG).target == Span(8, 12)
    assert Swarmlab().choose(SwarmView(12, ()), newcomer, RNG).target == Span(0, 4)
    assert Swarmlab().choose(SwarmView(2, ()), newcomer, RNG).target == Span(0, 2)


@pytest.mark.parametrize("setting", ["grace_s", "visible_after_s", "confirm_s", "no_return_s"])
def test_impossible_settings_are_refused(setting: str):
    with pytest.raises(BadInput, match=setting):
        replace(Swarmlab(), **{setting: -1.0})
    with pytest.raises(BadInput, match="good_enough"):
        Swarmlab(good_enough=0.0)


def servers(rng: np.random.Generator, n: int, n_blocks: int) -> list[Server]:
    found = []
    for i in range(n):
        width = int(rng.integers(4, n_blocks // 2 + 1))
        start = int(rng.integers(0, n_blocks - width + 1))
        span = Span(start, start + width)
        found.append(Server(f"p{i:03d}", width, float(rng.lognormal(7, 1)), span))
    # one server that holds everything, so that the swarm serves from the beginning
    return [*found, Server("whole", n_blocks, 100.0, Span(0, n_blocks))]


def returns(result: Played, within_s: float = 3600.0) -> list[str]:
    """Servers that went back to a span that they had left not long before."""
    left: dict[tuple[str, Span], float] = {}
    found = []
    for at_s, peer, old, new in result.moves:
        left[peer, old] = at_s
        if at_s - left.get((peer, new), -within_s) < within_s:
            found.append(peer)
    return found


@pytest.mark.parametrize("seen_after_s", [0.0, 60.0])
@pytest.mark.parametrize("n", [6, 25])
def test_a_still_swarm_comes_to_rest_better_and_never_worse_served(n: int, seen_after_s: float):
    for seed in range(2):
        crowd = servers(np.random.default_rng([n, seed]), n, 40)
        task = problem(
            40,
            [s.n_blocks for s in crowd],
            [s.throughput_tps for s in crowd],
            [s.span.start for s in crowd if s.span],
        )
        result = play(Swarmlab(), 40, crowd, seconds=2 * 3600.0, seen_after_s=seen_after_s)
        best = good_placement(task, np.random.default_rng(0), kicks=200).swarm_tps
        assert result.swarm_tps > task.swarm_tps(task.starts)
        assert result.swarm_tps > 0.7 * best
        assert not result.unserved
        assert not returns(result)
        assert all(old != new for _, _, old, new in result.moves)
        assert len([move for move in result.moves if move[0] > 5400.0]) <= 1


@pytest.mark.parametrize("seen_after_s", [0.0, 60.0])
def test_no_herd_where_many_see_one_gap(seen_after_s: float):
    # 40 equal servers of 10 blocks on 40: right is 10 on each quarter, so 8 have to go, and each only once
    starts = [0] * 12 + [10] * 13 + [20] * 13 + [30] * 2
    crowd = [Server(f"p{i:02d}", 10, 100.0, Span(s, s + 10)) for i, s in enumerate(starts)]
    result = play(Swarmlab(), 40, crowd, seconds=2 * 3600.0, seen_after_s=seen_after_s)
    assert result.swarm_tps == pytest.approx(1000.0)
    assert 8 <= len(result.moves) <= 12
    assert len({peer for _, peer, _, _ in result.moves}) == len(result.moves)
    assert not result.unserved


def test_a_crash_is_repaired_after_the_grace_time():
    starts = [0] * 6 + [10] * 6 + [20] * 2
    crowd = [Server(f"p{i:02d}", 10, 100.0, Span(s, s + 10)) for i, s in enumerate(starts)]
    crashes = {"p12": 600.0, "p13": 600.0}
    result = play(Swarmlab(), 30, crowd, seconds=2 * 3600.0, crashes=crashes)
    assert result.swarm_tps >= 300.0
    assert not [move for move in result.moves if 600.0 < move[0] < 690.0]


def test_decisions_draw_nothing_and_change_no_view():
    rng = np.random.default_rng(3)
    policy = Swarmlab()
    for _ in range(60):
        view = random_view(rng, max_blocks=12, max_servers=16)
        record = view.servers[0]
        server = Server(record.peer_id, record.span.length, record.throughput_tps, record.span)
        before = rng.bit_generator.state
        decision = policy.reconsider(view, server, None, rng)
        assert rng.bit_generator.state == before
        fresh = SwarmView(view.n_blocks, view.servers, view.seen_at_s)
        assert replace(policy.reconsider(fresh, server, None, rng), memory=None) == replace(
            decision, memory=None
        )
