"""The swarmlab policy where a block has nobody: who goes, how soon, and who does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.memory import Gone, Memory
from swarmlab.placement.policy import Asking, Server
from swarmlab.placement.registry import POLICIES
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.placement.testimony import Answer, Answers
from swarmlab.types import Decision, Intent, ServerRecord, Span, SwarmView
from tests.placement.play import play

RNG = np.random.default_rng(0)
SOLE = ServerRecord("z", Span(4, 8), 12.0)  # so strong that nobody need help it
LARGE = tuple(ServerRecord(f"p{i:02d}", Span(0, 4), 1.0) for i in range(12))
SMALL = LARGE[:4]
swarms = pytest.mark.parametrize("others", [SMALL, LARGE], ids=["small", "large"])


def me(peer: str = "p00", **changes: object) -> Server:
    return replace(Server(peer, 4, 1.0, Span(0, 4), LoadCost(s_per_block=5.0)), **changes)  # type: ignore[arg-type]


def at(seconds: float, *records: ServerRecord, n_blocks: int = 8) -> SwarmView:
    return SwarmView(n_blocks, records, seen_at_s=seconds)


def decide(view: SwarmView, server: Server, memory: Memory | None, **answers: Answer) -> Decision:
    if answers:
        memory = replace(memory or Memory(), testimony=Answers(answers))
    return Swarmlab().reconsider(view, server, memory, RNG)


def foremost(others: tuple[ServerRecord, ...]) -> list[str]:
    """Who goes first of those that could; in a small swarm the plan chooses, and moves two to be even."""
    return [
        record.peer_id
        for record in others
        if decide(at(60.0, *others), me(record.peer_id), None).intent is not None
    ]


def whole(others: tuple[ServerRecord, ...]) -> Memory:
    """What a server remembers that has seen the swarm when nothing was missing."""
    return decide(at(0.0, *others, SOLE), me(), None).memory


@swarms
def test_a_hole_that_a_refusal_confirms_is_loaded_for_at_once_and_said_with_it(others):
    move = decide(
        at(60.0, *others), me(foremost(others)[0]), whole(others), z=Answer.REFUSED, p01=Answer.SERVES
    )
    assert (move.moved, move.target, move.keeps_target) == (True, Span(4, 8), True)
    assert (move.intent, move.check_again_s) == (Intent(Span(4, 8), 60.0), 60.0)
    assert move.memory.wish is None


@swarms
def test_the_next_best_server_waits_and_finds_the_hole_filled(others):
    first = foremost(others)
    second = next(record.peer_id for record in others if record.peer_id not in first)
    wait = decide(at(60.0, *others), me(second), whole(others), z=Answer.REFUSED, p02=Answer.SERVES)
    assert (wait.moved, wait.intent) == (False, None)
    assert wait.check_again_s == 10.0 * len(first)
    going = [
        replace(record, intent=Intent(Span(4, 8), 60.0)) if record.peer_id in first else record
        for record in others
    ]
    later = decide(at(70.0, *going), me(second), wait.memory)
    assert not later.moved  # no hole any more: if it wants to help on, it says so first


@swarms
@pytest.mark.parametrize("answer", [Answer.SERVES, Answer.SILENT])
def test_a_lapsed_record_of_a_live_or_silent_server_moves_nobody(others, answer):
    mine = me(foremost(others)[0])
    decision = decide(at(60.0, *others), mine, whole(others), z=answer, p01=Answer.SERVES)
    assert (decision.moved, decision.intent) == (False, None)
    decision = decide(at(149.0, *others), mine, decision.memory, z=answer, p01=Answer.SERVES)
    assert (decision.moved, decision.intent) == (False, None)
    later = decide(at(151.0, *others), mine, decision.memory, z=answer, p01=Answer.SERVES)
    assert later.moved == (answer is Answer.SILENT)


@swarms
def test_a_server_whose_machine_answers_nobody_is_cut_off_and_stays(others):
    silent = dict.fromkeys(["z", "p01", "p02"], Answer.SILENT)
    memory = whole(others)
    decision = decide(at(60.0), me(), memory, **silent)
    assert (decision.moved, decision.intent, decision.check_again_s) == (False, None, None)
    assert decision.memory == memory  # and learns nothing from what it sees meanwhile
    back = decide(at(1000.0, *others, SOLE), me(), decision.memory)
    assert (back.moved, back.intent, back.memory.vanished) == (False, None, ())


@swarms
def test_an_announced_move_stays_announced_while_a_server_is_cut_off(others):
    wish = decide(at(0.0, *others), me(foremost(others)[0]), None)
    assert wish.intent is not None
    silent = dict.fromkeys(["z", "p01"], Answer.SILENT)
    assert decide(at(60.0, *others), me(), wish.memory, **silent).intent == wish.intent


@swarms
def test_a_hole_seen_at_the_very_first_look_is_announced_first(others):
    # nothing is remembered, so nobody could be asked: the record may just be missing
    decision = decide(at(60.0, *others), me(foremost(others)[0]), None)
    assert not decision.moved
    assert decision.intent == Intent(Span(4, 8), 60.0)


def test_a_hole_that_needs_two_servers_is_announced_first():
    memory = decide(at(0.0, *LARGE, n_blocks=12), me(load=LoadCost(s_per_block=1e6)), None).memory
    decision = decide(at(60.0, *LARGE, n_blocks=12), me(), memory)
    assert not decision.moved
    assert decision.intent is not None


def test_a_record_that_its_server_disowned_is_no_server():
    late = replace(SOLE, expires_at_s=100.0)
    others = tuple(replace(record, expires_at_s=180.0) for record in LARGE)
    memory = replace(whole(LARGE), gone=(Gone("z", 100.0),))
    assert decide(at(60.0, *others, late), me(), memory).moved
    # neither where it is, nor where it said that it would go
    going = replace(late, span=Span(0, 4), intent=Intent(Span(4, 8), 1.0))
    assert decide(at(60.0, *others, going), me(), memory).moved
    assert not decide(at(60.0, *others, replace(late, expires_at_s=170.0)), me(), memory).moved


@swarms
@pytest.mark.parametrize("seen_after_s", [0.0, 5.0])
def test_many_see_one_hole_and_few_go(others, seen_after_s):
    result = play(
        Swarmlab(), 8, [*(me(record.peer_id) for record in others), Server("z", 4, 12.0, Span(4, 8))],
        crashes={"z": 600.0}, seen_after_s=seen_after_s, seconds=3600.0, asks=True,
    )  # fmt: skip
    # half of them are right, each goes once, and before the others' first turn only those who go first
    assert result.swarm_tps == len(others) / 2
    assert len(result.moves) == len({peer for _, peer, _, _ in result.moves}) == len(others) / 2
    assert 600.0 <= result.moves[0][0] < 670.0
    at_once = {peer for at_s, peer, _, _ in result.moves if at_s < 610.0}
    assert at_once <= set(foremost(others))


def test_a_swarm_with_many_holes_mends_them_though_no_move_alone_is_worth_its_price():
    servers = [
        Server(f"p{place:02d}{twin}", 5, 1.0, Span(place, place + 5), LoadCost(s_per_block=30.0))
        for place in range(0, 80, 10)
        for twin in "abc"
    ]
    assert play(Swarmlab(), 80, servers).swarm_tps > 0


def test_a_swarm_that_can_hold_hardly_more_than_the_model_is_mended_by_a_chain_of_moves():
    # 97 blocks for 80: every server has announced its best move or has none, and 17 blocks would still have nobody
    starts = (0, 8, 23, 49, 71, 14, 46, 14, 66, 35, 0, 48)
    widths = (8, 8, 9, 9, 3, 6, 8, 9, 4, 11, 11, 11)
    rates = np.random.default_rng(7).uniform(5.0, 15.0, len(starts))
    servers = [
        Server(f"p{i:02d}", width, float(rate), Span(start, start + width), LoadCost(s_per_block=30.0))
        for i, (start, width, rate) in enumerate(zip(starts, widths, rates, strict=True))
    ]
    assert play(Swarmlab(), 80, servers, seconds=1800.0).swarm_tps > 0


# 12 servers of 3 blocks on 35: 20 has nobody, 2 and 29 have two, and whoever moves by one block only moves the gap
CALM = tuple(
    ServerRecord(f"p{i:02d}", Span(start, start + 3), 1.0)
    for i, start in enumerate((0, 2, 5, 8, 11, 14, 17, 21, 24, 27, 29, 32))
)


def servers_of(records: tuple[ServerRecord, ...]) -> list[Server]:
    load = LoadCost(s_per_block=30.0)
    return [Server(one.peer_id, one.span.length, one.throughput_tps, one.span, load) for one in records]


def test_a_swarm_with_a_gap_in_which_nobody_alone_has_a_move_follows_a_plan():
    result = play(Swarmlab(), 35, servers_of(CALM), seconds=600.0)
    assert result.swarm_tps == 1.0
    assert sorted(peer for _, peer, _, _ in result.moves) == ["p07", "p08", "p09"]
    assert result.blocks_loaded == 3
    assert result.moves[0][0] > 120.0  # there is time for whoever has a move


def test_a_move_announced_early_does_not_stand_in_the_way_of_the_plan_for_ever():
    # 13 servers of 3 blocks on 38: p07 wants to fill 6 alone, where it would leave no way to fill 31
    starts = (28, 13, 0, 32, 25, 19, 7, 35, 16, 10, 35, 22, 3)
    records = tuple(ServerRecord(f"p{i:02d}", Span(start, start + 3), 1.0) for i, start in enumerate(starts))
    wish = play(Swarmlab(), 38, servers_of(records), seconds=100.0)
    assert [one.peer_id for one in wish.view.servers if one.intent] == ["p07"]
    assert play(Swarmlab(), 38, servers_of(records), seconds=900.0).swarm_tps == 1.0


def test_a_plan_for_a_gap_waits_until_it_has_lasted_and_a_gap_that_closes_is_forgotten():
    mine, helper = servers_of(CALM)[7], ServerRecord("z", Span(20, 23), 1.0)
    first = decide(at(100.0, *CALM, n_blocks=35), mine, None)
    early = decide(at(220.0, *CALM, n_blocks=35), mine, first.memory)
    late = decide(at(221.0, *CALM, n_blocks=35), mine, early.memory)
    assert [one.memory.gap_since_s for one in (first, early, late)] == [100.0] * 3
    assert [one.intent for one in (first, early, late)] == [None, None, Intent(Span(20, 23), 221.0)]
    closed = decide(at(200.0, *CALM, helper, n_blocks=35), mine, first.memory)
    again = decide(at(300.0, *CALM, n_blocks=35), mine, replace(closed.memory, last_view=None))
    assert (closed.memory.gap_since_s, again.memory.gap_since_s, again.intent) == (None, 300.0, None)


def test_where_news_are_late_a_plan_does_not_undo_what_moves_on_their_own_mend():
    # with plans on views of a minute ago it took 1,646 s, without 522 s
    rng, widths = np.random.default_rng(5), []
    while sum(widths) < 40 * 1.12:
        widths.append(int(rng.integers(2, 6)))
    starts = [int(rng.integers(0, 40 - width + 1)) for width in widths]
    rates = rng.uniform(5.0, 15.0, len(widths))
    servers = [
        Server(f"p{i:02d}", width, float(rate), Span(start, start + width), LoadCost(s_per_block=30.0))
        for i, (start, width, rate) in enumerate(zip(starts, widths, rates, strict=True))
    ]
    assert play(Swarmlab(), 40, servers, seconds=1000.0, seen_after_s=60.0).swarm_tps > 0


def test_a_server_with_fixed_blocks_is_not_counted_on_to_move():
    # a move of y alone would do most, but its blocks are fixed
    mine, policy = me("b"), Swarmlab(visible_after_s=0.0)
    records = [ServerRecord(peer, Span(0, 4), tps) for peer, tps in (("a", 1.0), ("b", 1.0), ("y", 3.0))]
    free = policy.reconsider(at(0.0, *records), mine, None, RNG)
    fixed = policy.reconsider(at(0.0, *records[:2], replace(records[2], movable=False)), mine, None, RNG)
    assert "raise 0 to 2" in free.reason
    assert "raise 0 to 1" in fixed.reason or fixed.moved


@pytest.mark.parametrize("watch_s", [0.0, -1.0, float("nan")])
def test_impossible_times_between_looks_are_refused(watch_s):
    with pytest.raises(BadInput, match="watch_s"):
        Swarmlab(watch_s=watch_s)


def test_only_ours_asks():
    assert [name for name, kind in POLICIES.items() if hasattr(kind, "whom_to_ask")] == ["swarmlab"]
    assert isinstance(Swarmlab(), Asking)
