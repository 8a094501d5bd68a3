"""Clients of tiny swarms whose waits can be computed by hand, and what clients must not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import simpy

from swarmlab.errors import BadInput
from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.petals import Petals
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.recovery.routing import HOP_OVERHEAD_S, Hop
from swarmlab.sim.client_settings import MOST_CLIENTS, SimClients
from swarmlab.sim.clients import Traffic
from swarmlab.sim.population import Ending, Member, Visit, churn_members
from swarmlab.sim.settings import SimSettings, check
from swarmlab.sim.shares import Pass, Shares
from swarmlab.sim.simulate import run_world, simulate
from swarmlab.sim.world import Arm, World
from swarmlab.types import Span
from tests.sim.swarms import FOREVER, TINY, Told, member, rows, run

TWO = SimClients(
    n_clients=2, n_sites=1, prompt_tokens=10, new_tokens=20, step_tps=100.0, rtt_min_s=0.1, rtt_max_s=0.1,
    detect_s=2.0, patience_s=30.0,
)  # fmt: skip
ONE = replace(TWO, n_clients=1)
KINDS = ("sessions", "failovers", "openings", "delivered")
# Of a server with 4 blocks and 50 tokens/s through each, two sessions get 100 passes through a block per second each.
STEP_S = 0.1 + HOP_OVERHEAD_S + 4 / 100
OPEN_S, FED_S = 0.2, 10 * 4 / 100


def holder(name: str, span: Span, tps: float, end_s: float = FOREVER, how: str = "crash") -> Member:
    return Member(name, span.length, tps, (Visit(0.0, end_s, Ending(how)),), held=span)


def whole(name: str, end_s: float = FOREVER, how: str = "crash") -> Member:
    return holder(name, Span(0, 4), 50.0, end_s, how)


def asked(members: list[Member], clients: SimClients = TWO, policy: Any = None, **changes: Any) -> list[Any]:
    return run(policy or JoinOnly(mean_choice_delay_s=0.0), members, clients=clients, **changes)


def test_two_sessions_share_one_server():
    first, second, *_ = rows(asked([whole("a")]), "sessions")
    for row in (first, second):
        assert row["elapsed_s"] == pytest.approx(OPEN_S + FED_S + 20 * STEP_S, abs=2e-3)
        assert (row["outcome"], row["tokens"], row["recoveries"]) == ("finished", 20, 0)
    alone = rows(asked([whole("a")], replace(ONE, step_tps=1000.0)), "sessions")[0]
    expected_s = OPEN_S + 10 * 4 / 200 + 20 * (0.1 + HOP_OVERHEAD_S + 4 / 200)
    assert alone["elapsed_s"] == pytest.approx(expected_s, abs=2e-3)


def test_a_crash_at_a_known_time():
    history = asked([whole("a", end_s=3.0), whole("b")])
    done = int((3.0 - OPEN_S - FED_S) / STEP_S)
    assert done == 15
    replay_s = (10 + done) * 4 / 100
    for row in rows(history, "failovers")[:2]:
        assert row["t"] == pytest.approx(3.0 + 2.0 + OPEN_S + replay_s, abs=2e-3)
        assert (row["cause"], row["token"], row["tokens_replayed"]) == ("hung", 15, 25)
        assert (row["detect_s"], row["connect_s"], row["reroute_s"]) == (2.0, 0.2, 0.0)
        assert (row["replay_s"], row["total_s"]) == (pytest.approx(replay_s), pytest.approx(2.2 + replay_s))
        assert row["failed"] == [{"peer": "a", "start": 0, "end": 4, "cause": "hung"}]
        assert row["spans"] == [{"peer": "b", "start": 0, "end": 4}]
    first = rows(history, "sessions")[0]
    assert first["elapsed_s"] == pytest.approx(3.0 + 2.2 + replay_s + 5 * STEP_S, abs=2e-3)
    assert (first["tokens"], first["recoveries"]) == (20, 1)


def test_who_says_goodbye_is_not_waited_for():
    (row, *_) = rows(asked([whole("a", 3.0, "leave"), whole("b")]), "failovers")
    assert (row["cause"], row["detect_s"]) == ("broken", 0.0)


def test_a_session_ends_after_its_patience():
    history = asked([whole("a", end_s=3.0)])
    failover, session = rows(history, "failovers")[0], rows(history, "sessions")[0]
    assert (failover["completed"], session["outcome"], session["tokens"]) == (False, "failed", 15)
    # the next look would have been too late
    assert 30.0 - 4.0 < failover["total_s"] <= 30.0
    assert failover["reroute_s"] > 20.0
    assert {row["clients_seeking"] for row in rows(history, "delivered")} == {2}


PATIENT = replace(TWO, patience_s=1000.0)
WAITS = ("detect_s", "reroute_s", "connect_s", "replay_s")


def test_a_stall_that_goes_on_at_the_end_counts_as_far_as_it_has_come():
    history = asked([whole("a", end_s=3.0)], PATIENT, duration_s=200.0)
    assert not rows(history, "sessions"), "both of them wait"
    stalls = rows(history, "failovers")
    assert [row["cut_off"] for row in stalls] == [True, True]
    for row in stalls:
        assert (row["t"], row["completed"], row["tokens_replayed"]) == (200.0, False, 0)
        assert row["total_s"] == 197.0
        assert sum(row[name] for name in WAITS) == pytest.approx(197.0), (
            "the wait in which it ends counts, too"
        )


def test_one_that_is_cut_off_while_it_replays():
    history = asked([whole("a", end_s=3.0), whole("b")], duration_s=3.0 + 2.0 + OPEN_S + 0.5)
    for row in rows(history, "failovers"):
        assert row["cut_off"]
        assert (row["replay_s"], row["total_s"]) == (pytest.approx(0.5), pytest.approx(2.7))
    assert not any(
        row["cut_off"] for row in rows(asked([whole("a", end_s=3.0), whole("b")]), "failovers")[:2]
    )


def test_sessions_that_wait_for_their_first_servers_at_the_end():
    history = asked([member("b", 4, 50.0, 190.0)], PATIENT, duration_s=200.0)
    assert [(row["cut_off"], row["total_s"], row["reroute_s"]) for row in rows(history, "openings")] == [
        (True, 200.0, 200.0)
    ] * 2
    assert not rows(asked([whole("a")], duration_s=OPEN_S / 2), "openings"), "it opens without trouble"


def test_a_session_waits_for_somebody_to_serve():
    # b loads from 10 s to 50 s
    patient = replace(TWO, patience_s=100.0)
    row = rows(asked([whole("a", end_s=3.0), member("b", 4, 50.0, 10.0)], patient), "failovers")[0]
    assert row["completed"]
    looked_s = row["t"] - row["replay_s"] - OPEN_S
    assert 50.0 <= looked_s <= 54.0
    assert row["spans"] == [{"peer": "b", "start": 0, "end": 4}]


def test_blocks_that_a_moving_server_keeps_go_on():
    # a gives up block 0 to load block 3: the client finds another server for block 0 and goes on at a with the rest
    servers = [
        holder("a", Span(0, 3), 50.0),
        holder("b", Span(3, 4), 50.0),
        holder("c", Span(0, 1), 50.0),
    ]
    long = replace(ONE, new_tokens=1000)
    history = asked(servers, long, Told(Span(0, 3), (Span(1, 4),)), keeps=True)
    moved_s = rows(history, "decisions")[0]["t"]
    row = rows(history, "failovers")[0]
    assert row["t"] == pytest.approx(moved_s + 2 * OPEN_S + row["replay_s"], abs=0.01)
    assert row["failed"] == [{"peer": "a", "start": 0, "end": 3, "cause": "stale"}]
    assert [(one["peer"], one["start"], one["end"]) for one in row["spans"]] == [("c", 0, 1), ("a", 1, 3)]
    assert len(rows(history, "failovers")) == 1, "blocks that stay served are not lost"


def test_a_server_that_is_gone_when_it_is_asked():
    # the second session begins at 3.6 s, 0.1 s before the server that it has chosen is gone
    late = rows(asked([whole("a", end_s=3.7), whole("b")], replace(TWO, new_tokens=19)), "openings")[0]
    assert (late["cause"], late["requests"], late["detect_s"]) == ("hung", 2, 2.0)
    assert late["total_s"] == pytest.approx(2 * OPEN_S + 2.0 + FED_S, abs=2e-3)


def test_a_client_reads_again_when_its_view_is_old():
    settings = replace(TINY, clients=replace(ONE, view_age_s=30.0))
    world = World(Arm("x", JoinOnly()), settings, 0)
    client = Traffic(world, [whole("a")]).clients[0]
    first = client.known(30.0)
    world.env.run(until=29.0)
    assert client.known(30.0) is first
    world.env.run(until=30.0)
    assert client.known(30.0).view.seen_at_s == 30.0


def test_rates_change_while_tokens_pass():
    env, shares = simpy.Environment(), Shares({"a": 10.0}, step_tps=1000.0)
    hops = (Hop("a", Span(0, 10)),)
    ended = {}

    def one(name, start_s, tokens):
        yield env.timeout(start_s)
        yield from Pass(hops, tokens, {"a": 0.0}, feeds=True).run(env, shares)
        ended[name] = env.now

    env.process(one("first", 0.0, 10.0))  # alone it would take 10 s
    env.process(one("second", 4.0, 2.0))
    env.run()
    # together each token takes 2 s: the second one 4 to 8 s, in which the first one does 2 of the 6 that are left
    assert ended == {"second": pytest.approx(8.0), "first": pytest.approx(12.0)}


def test_tokens_are_no_events():
    changes = {"duration_s": 5000.0, "clients": replace(ONE, new_tokens=20_000)}
    policy = JoinOnly(mean_choice_delay_s=0.0)
    asking = run_world(replace(TINY, **changes), [whole("a")], Arm("x", policy), 0)
    alone = run_world(replace(TINY, duration_s=5000.0), [whole("a")], Arm("x", policy), 0)
    assert sum(row["tokens"] for row in rows(asking.history, "delivered")) > 19_000
    n_samples = len(rows(asking.history, "delivered"))
    assert asking.env.n_steps < alone.env.n_steps + n_samples + 50


def test_what_is_delivered_is_what_sessions_got():
    history = asked([whole("a", end_s=50.0), whole("b", end_s=121.0)], duration_s=181.0)
    delivered = sum(row["tokens"] for row in rows(history, "delivered"))
    assert delivered == sum(row["tokens"] for row in rows(history, "sessions")) > 500


CHURN = SimSettings(
    n_blocks=12, n_servers=8, active_min=8, active_max=8, capacity_min=2, capacity_max=6, duration_s=3000.0,
    warm_up_s=600.0, lifetime_min_s=600.0, lifetime_max_s=1200.0, crash_share=0.5, s_per_block=5.0,
    lapses_per_hour=2.0,
)  # fmt: skip


@pytest.mark.parametrize("view_age_s", [0.0, 30.0])
@pytest.mark.parametrize("policy", [Petals(), Swarmlab()], ids=lambda policy: policy.name)
def test_servers_do_the_same_with_clients_and_without(policy, view_age_s):
    arm = Arm(policy.name, policy, keeps_overlap=policy.name == "swarmlab")
    members = churn_members(CHURN, 3)
    without = replace(CHURN, view_age_s=view_age_s)
    with_clients = replace(without, clients=SimClients(n_clients=5))
    history = simulate(with_clients, members, arm, 3)
    plain = simulate(without, members, arm, 3)
    assert [event for event in history if event.kind not in KINDS] == plain
    assert not {event.kind for event in plain} & set(KINDS)
    assert rows(history, "failovers")
    assert simulate(with_clients, members, arm, 3) == history, "one seed, one history"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clients", -1), ("n_clients", 10_001), ("n_sites", 0), ("prompt_tokens", 0), ("new_tokens", 0),
        ("step_tps", 0.0), ("view_age_s", 0.0), ("patience_s", 0.5), ("pause_s", -1.0), ("detect_s", float("nan")),
        ("rtt_max_s", 0.01), ("rtt_max_s", 11.0),
    ],
)  # fmt: skip
def test_clients_that_cannot_be_are_refused(name, value):
    with pytest.raises(BadInput, match=f"sim.clients.{name}"):
        check(replace(CHURN, clients=replace(SimClients(), **{name: value})))


@pytest.mark.parametrize("number", [-1, MOST_CLIENTS + 1])
def test_how_many_clients_there_can_be_is_said_alike_at_both_ends(number):
    with pytest.raises(BadInput) as refused:
        check(replace(CHURN, clients=SimClients(n_clients=number)))
    assert refused.value.allowed == "a whole number from 0, which is nobody, to 10000"
