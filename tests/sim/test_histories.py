"""Tiny swarms whose history can be computed by hand, row by row."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any

import pytest

from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.policy import stay
from swarmlab.sim.world import World
from swarmlab.types import Intent, Span
from tests.sim.swarms import Told, member, rows, run, states

if TYPE_CHECKING:
    from swarmlab.placement.policy import Server
    from swarmlab.types import Decision, SwarmView


def test_a_crashed_server_is_believed_until_its_record_expires():
    # a and b split the model; a dies silently at 100 s; c joins at 150 s and is misled by a's record
    history = run(
        JoinOnly(mean_choice_delay_s=0.0),
        [member("a", 2, 3.0, 0.0, 100.0, "crash"), member("b", 2, 1.0, 5.0), member("c", 2, 1.0, 150.0)],
    )
    assert states(history, "a") == [
        (0.0, "joining", "0:2", None),
        (20.0, "online", "0:2", "0:2"),
        (100.0, "crash", "0:2", None),
    ]
    assert states(history, "b") == [(5.0, "joining", "2:4", None), (25.0, "online", "2:4", "2:4")]
    assert states(history, "c") == [(150.0, "joining", "2:4", None), (170.0, "online", "2:4", "2:4")]
    seen = [
        (row["t"], row["swarm_tps"], row["announced_swarm_tps"], row["n_active"], row["n_moving"])
        for row in rows(history, "balance")
    ]
    assert seen == [
        (0.0, 0.0, 0.0, 1, 1),  # a loads; nobody holds 2:4
        (60.0, 1.0, 1.0, 2, 0),
        (120.0, 0.0, 1.0, 1, 0),  # a is gone, its record of 60 s is not
        (180.0, 0.0, 0.0, 2, 0),  # expired; c went to the wrong half
    ]
    assert [row["loaded"] for row in rows(history, "reloads")] == [2, 2, 2]


def test_a_server_that_leaves_says_so():
    history = run(
        JoinOnly(mean_choice_delay_s=0.0),
        [member("a", 2, 3.0, 0.0, 100.0, "leave"), member("b", 2, 1.0, 5.0), member("c", 2, 1.0, 150.0)],
    )
    assert states(history, "c")[0] == (150.0, "joining", "0:2", None), "c goes where a was"
    assert [row["announced_swarm_tps"] for row in rows(history, "balance")] == [0.0, 1.0, 0.0, 1.0]


def first_check_s(history) -> float:
    return rows(history, "decisions")[1]["t"]


def test_the_originals_habit_reloads_all_it_had():
    history = run(Told(Span(0, 2), ("again",)), [member("a", 2, 1.0)])
    at_s = first_check_s(history)
    assert states(history, "a")[2:] == [
        (pytest.approx(at_s), "offline", "0:2", None),
        (pytest.approx(at_s), "joining", "0:2", None),
        (pytest.approx(at_s + 20), "online", "0:2", "0:2"),
    ]
    joined, reload = rows(history, "reloads")
    assert (joined["loaded"], joined["redundant"], joined["no_op"]) == (2, 0, False)
    assert (reload["loaded"], reload["redundant"], reload["no_op"], reload["kept"]) == (2, 2, True, 0)
    assert (reload["out_of_service_s"], reload["lost_block_s"]) == (20.0, 40.0)
    phases = [(row["phase"], row["target"], row["chosen"]) for row in rows(history, "decisions")]
    assert phases == [("join", "0:2", "0:2"), ("check", "1:3", None), ("choose", "0:2", "0:2")]


def test_the_wait_before_choosing_again_is_lost_too():
    history = run(Told(Span(0, 2), ("again",)), [member("a", 2, 1.0)], mean_choice_delay_s=10.0)
    decided, chosen = rows(history, "decisions")[1:3]
    wait_s = chosen["t"] - decided["t"]
    assert 0 < wait_s < 20
    reload = rows(history, "reloads")[1]
    assert reload["out_of_service_s"] == pytest.approx(20 + wait_s, abs=0.002)
    assert reload["lost_block_s"] == pytest.approx(2 * (20 + wait_s), abs=0.004)


def test_a_server_that_keeps_its_blocks_serves_on_one_short():
    history = run(Told(Span(0, 2), (Span(1, 3), Span(0, 2))), [member("a", 2, 1.0)], keeps=True)
    at_s = first_check_s(history)
    assert states(history, "a")[2:4] == [
        (pytest.approx(at_s), "joining", "1:3", "1:2"),
        (pytest.approx(at_s + 10), "online", "1:3", "1:3"),
    ]
    there, back = rows(history, "reloads")[1:]
    for row in (there, back):
        assert (row["kept"], row["loaded"], row["redundant"], row["no_op"]) == (1, 1, 0, False)
        assert (row["out_of_service_s"], row["lost_block_s"]) == (10.0, 10.0)


def test_another_server_that_moves_reloads_what_it_had():
    history = run(Told(Span(0, 2), (Span(1, 3),)), [member("a", 2, 1.0)])
    row = rows(history, "reloads")[1]
    assert (row["kept"], row["loaded"], row["redundant"], row["lost_block_s"]) == (0, 2, 1, 40.0)


def test_an_intent_is_seen_by_others_while_the_server_serves():
    intent = Intent(Span(2, 4), 0.0)
    history = run(Told(Span(0, 2), (intent,)), [member("a", 2, 1.0)])
    announced, withdrawn = rows(history, "decisions")[1:3]
    assert (announced["intent"], announced["moved"]) == ("2:4", False)
    assert (withdrawn["intent"], withdrawn["t"]) == (None, pytest.approx(announced["t"] + 30, abs=0.002))
    assert [state for _, state, _, _ in states(history, "a")] == ["joining", "online"]


def test_a_server_that_dies_while_it_loads_leaves_an_unfinished_reload():
    history = run(JoinOnly(mean_choice_delay_s=0.0), [member("a", 2, 1.0, 0.0, 15.0, "crash")])
    (row,) = rows(history, "reloads")
    assert (row["completed"], row["loaded"], row["out_of_service_s"], row["lost_block_s"]) == (
        False,
        0,
        15.0,
        30.0,
    )
    assert states(history, "a")[-1] == (15.0, "crash", "0:2", None)
    assert {row["n_moving"] for row in rows(history, "balance")[1:]} == {0}


def test_a_server_that_dies_before_it_has_chosen_leaves_no_trace():
    history = run(
        JoinOnly(), [member("a", 2, 1.0, 0.0, 1e-6), member("b", 2, 1.0, 10.0)], mean_choice_delay_s=5.0
    )
    assert [state for _, state, *_ in states(history, "a")] == ["leave"]
    assert not [row for row in rows(history, "reloads") if row["server"] == "a"]


def test_a_preempted_server_comes_back_under_its_name():
    from swarmlab.sim.population import Ending, Member, Visit

    twice = Member("a", 2, 1.0, (Visit(0.0, 50.0, Ending.PREEMPT), Visit(80.0, 1e9)))
    history = run(JoinOnly(mean_choice_delay_s=0.0), [twice])
    assert states(history, "a")[2:] == [
        (50.0, "preempt", "0:2", None),
        (80.0, "joining", "0:2", None),  # its own old record does not count against it
        (100.0, "online", "0:2", "0:2"),
    ]
    assert not rows(history, "reloads")[1]["no_op"], "its memory was empty"


def test_records_take_their_time_to_be_seen():
    late = run(
        JoinOnly(mean_choice_delay_s=0.0),
        [member("a", 2, 3.0), member("b", 2, 1.0, 5.0)],
        announce_delay_s=10.0,
    )
    assert states(late, "b")[0] == (5.0, "joining", "0:2", None), "b has not seen a yet"


class Restless(Told):
    """Wants to go at every check, between two spans, without having said so before; remembers when it was asked."""

    def reconsider(self, view: SwarmView, server: Server, memory: Any, rng: Any) -> Decision:
        del memory, rng
        self.asked.append(round(view.seen_at_s))
        target = Span(1, 3) if server.span == Span(0, 2) else Span(0, 2)
        intent = Intent(target, view.seen_at_s)
        here = stay(server, 1.0, self.name, "wants to go")
        return replace(here, moved=True, target=target, intent=intent, check_again_s=17.0)


def test_after_moves_that_were_not_made_a_server_waits_as_long_as_a_real_one(monkeypatch):
    objections = chain([None, *["something"] * 5, None, "something"], repeat(None))
    monkeypatch.setattr(World, "objection", lambda *_: next(objections))
    policy = Restless(Span(0, 2))
    run(policy, [member("a", 2, 1.0)], keeps=True, announce_delay_s=5.0, s_per_block=0.0, duration_s=4000.0)
    waited = [after - before - 5 for before, after in pairwise(policy.asked)]  # 5 s until the news are there
    assert waited[:9] == [60, 120, 240, 480, 960, 960, 60, 120, 60]
