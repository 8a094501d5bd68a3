"""Servers of the simulation are asked themselves: dead ones are found out early, lapsed ones are not given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.sim.population import Ending, Visit
from swarmlab.sim.scripted import Script, play
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.world import Arm
from swarmlab.types import Span
from tests.sim.swarms import FOREVER, member, rows, run

SWARM = {
    "n_blocks": 8, "duration_s": 1500.0, "sample_every_s": 5.0, "check_period_s": 60.0, "check_evenly": True,
    "s_per_block": 2.0,
}  # fmt: skip
DIES_S = 600.0


def crowd(n: int = 4, *, dies_s: float = float("inf"), how: str = "crash"):
    """Some equal servers on the first half, and one on the second that is as strong as all of them."""
    return [
        *(replace(member(f"p{i}", 4, 1.0), held=Span(0, 4)) for i in range(n)),
        replace(member("sole", 4, float(n), end_s=dies_s, how=how), held=Span(4, 8)),
    ]


def unserved_s(history) -> float:
    """How long the swarm served nothing."""
    return 5.0 * sum(row["swarm_tps"] == 0 for row in rows(history, "balance"))


def moves(history):
    return [row for row in rows(history, "reloads") if row["old_start"] is not None]


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_server_is_found_out_before_its_record_lapses(seed):
    history = run(Swarmlab(), crowd(dies_s=DIES_S), keeps=True, seed=seed, **SWARM)
    # its record was renewed at 600 s at the latest: late 72 s after that, lapsed 120 s after it
    first = next(row for row in rows(history, "decisions") if row["moved"] and row["t"] > 0)
    assert first["t"] <= DIES_S + 72.0 + Swarmlab().watch_s
    assert unserved_s(history) <= 72.0 + Swarmlab().watch_s + 4 * 2.0 + 5.0
    assert 1 <= len(moves(history)) <= 2
    assert not any(row["redundant"] or row["no_op"] for row in moves(history))


def test_one_that_leaves_politely_is_missed_at_the_next_look():
    history = run(Swarmlab(), crowd(dies_s=DIES_S, how="leave"), keeps=True, **SWARM)
    assert unserved_s(history) <= Swarmlab().watch_s + 4 * 2.0 + 5.0


def test_without_looks_between_checks_it_takes_longer():
    quick, slow = (
        run(Swarmlab(watch_s=watch_s), crowd(dies_s=DIES_S, how="leave"), keeps=True, **SWARM)
        for watch_s in (20.0, float("inf"))
    )
    assert unserved_s(quick) < unserved_s(slow)


@pytest.mark.parametrize("seed", range(3))
def test_lapses_of_live_servers_move_nobody(seed):
    # they join one after another, as real ones do: what they saw then is what they know at their first look
    servers = [
        replace(one, held=None, visits=(Visit(5.0 * i, FOREVER, Ending.LEAVE),))
        for i, one in enumerate(reversed(crowd()))
    ]
    history = run(
        Swarmlab(), servers, keeps=True, seed=seed, **{**SWARM, "duration_s": 7200.0}, lapses_per_hour=12.0
    )
    assert not moves(history)
    assert not [row for row in rows(history, "decisions") if row["intent"]]


@pytest.mark.parametrize("announce_delay_s", [0.0, 5.0, 60.0])
def test_few_go_into_a_hole_that_many_see_however_slow_the_news(announce_delay_s):
    history = run(
        Swarmlab(), crowd(24, dies_s=DIES_S), keeps=True, announce_delay_s=announce_delay_s,
        **{**SWARM, "duration_s": 3600.0},
    )  # fmt: skip
    # with half of them there the swarm is even; more would be a herd
    assert 10 <= len(moves(history)) <= 14
    assert rows(history, "balance")[-1]["swarm_tps"] >= 10.0
    assert not any(row["redundant"] or row["no_op"] for row in moves(history))


def test_a_move_that_others_have_made_meanwhile_is_withdrawn():
    # news take a minute, so that more than one decide on the same picture; those that announced later find out
    history = run(
        Swarmlab(), crowd(12, dies_s=DIES_S, how="leave"), keeps=True, announce_delay_s=60.0, **SWARM
    )
    assert [row for row in rows(history, "decisions") if row["phase"] == "withdraw"]
    # then as many are on each half; with news so slow some still try what gains a little, and may come back
    assert len([row for row in moves(history) if row["t"] < 900.0]) == 6
    assert next(row["swarm_tps"] for row in rows(history, "balance") if row["t"] >= 900.0) == 6.0
    assert rows(history, "balance")[-1]["swarm_tps"] >= 5.0


def test_fixed_servers_of_a_script_are_no_part_of_anybodys_plan():
    settings = SimSettings(
        **{**SWARM, "mean_choice_delay_s": 0.0, "warm_up_s": 0.0, "blocks_every_s": 1000.0}
    )
    # p1 is as good as p0 and would be sent by the plan's order as well; now only p0 can go
    for fixed in ("p0", "p1"):
        script = Script(fixed=frozenset({fixed}))
        history = play(settings, crowd(2, dies_s=DIES_S), Arm("swarmlab", Swarmlab(), True), script, 0)
        assert {row["server"] for row in moves(history)} == {"p0", "p1"} - {fixed}
        assert unserved_s(history) <= 72.0 + Swarmlab().watch_s + 4 * 2.0 + 5.0
