"""A simulated run: repeatable to the byte, the same servers for every arm, and nobody serves what it has not."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmlab.placement.policy import Server
from swarmlab.placement.registry import POLICIES
from swarmlab.record.writer import HistoryWriter
from swarmlab.sim.oracle import Oracle
from swarmlab.sim.population import Ending, Member, Visit, sine_members
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import loaded_bounds, optimum, simulate
from swarmlab.sim.world import Arm
from swarmlab.types import Decision, Span, SwarmView
from tests.sim.swarms import Told, member, rows, run

ARMS = ["none", "join_only", "appendix_d", "petals", "recheck", "swarmlab"]
SMALL = SimSettings(
    n_blocks=12, n_servers=24, duration_s=1500.0, warm_up_s=0.0, capacity_max=5, active_min=12, active_max=20,
    activity_period_s=1500.0, s_per_block=10.0, crash_share=0.5, lapses_per_hour=4.0, blocks_every_s=300.0,
)  # fmt: skip


def play(arm: str, world: SimSettings, members, seed: int = 0):
    return simulate(world, members, Arm(arm, POLICIES[arm](), keeps_overlap=arm == "swarmlab"), seed)


def as_bytes(history) -> bytes:
    lines = [json.dumps([e.t_s, e.kind, e.arm, dict(e.fields)], allow_nan=False) for e in history]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("arm", ARMS)
def test_a_seed_gives_the_same_history_to_the_byte(arm):
    first, second = (play(arm, SMALL, sine_members(SMALL, 3), 3) for _ in range(2))
    assert as_bytes(first) == as_bytes(second)
    assert len(first) > 50
    times = [event.t_s for event in first]
    assert times == sorted(times)


def test_the_recorded_files_are_the_same_to_the_byte(tmp_path):
    def written(name: str, start_s: float) -> bytes:
        (tmp_path / name).mkdir()
        with HistoryWriter(tmp_path / name, start_s=start_s) as writer:
            for event in play("swarmlab", SMALL, sine_members(SMALL, 1), 1):
                writer.write(event.kind, event.arm, at_s=writer.start_s + event.t_s, **event.fields)
        return b"".join(path.read_bytes() for path in sorted((tmp_path / name).iterdir()))

    assert written("one", 12.345678912) == written("two", 987654.321987654), (
        "whatever the machine's clock says"
    )


def test_another_seed_gives_another_history():
    one, two = (play("petals", SMALL, sine_members(SMALL, seed), seed) for seed in (0, 1))
    assert as_bytes(one) != as_bytes(two)


def comings_and_goings(history):
    return [
        (row["t"], row["server"], row["state"])
        for row in rows(history, "servers")
        if row["state"] in {"leave", "crash", "preempt"}
    ]


def test_all_arms_meet_the_same_servers_at_the_same_times():
    members = sine_members(SMALL, 5)
    histories = {arm: play(arm, SMALL, members, 5) for arm in ARMS}
    reference = comings_and_goings(histories["none"])
    assert len(reference) > 5
    for history in histories.values():
        assert comings_and_goings(history) == reference
        active = [(row["t"], row["n_active"]) for row in rows(history, "balance")]
        assert active == [(row["t"], row["n_active"]) for row in rows(optimum(SMALL, members, 5), "balance")]


def test_a_policy_that_draws_more_does_not_shift_other_draws():
    # recheck draws waits, petals does not: servers still join after the same waits
    members = sine_members(SMALL, 2)
    world = replace(SMALL, mean_choice_delay_s=20.0)
    first = [
        {
            (row["server"], row["t"])
            for row in rows(play(arm, world, members, 2), "decisions")
            if row["phase"] == "join"
        }
        for arm in ("petals", "recheck", "join_only")
    ]
    assert first[0] == first[1] == first[2] != set()


visits = st.builds(
    lambda start, length, how: Visit(float(start), float(start + length), how),
    st.integers(0, 300), st.integers(1, 500), st.sampled_from(list(Ending)),
)  # fmt: skip
populations = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 4), visits), min_size=1, max_size=7).map(
    lambda found: [Member(f"s{i}", n, float(tps), (visit,)) for i, (n, tps, visit) in enumerate(found)]
)


@settings(max_examples=30, deadline=None)
@given(
    populations, st.sampled_from(ARMS), st.sampled_from([0.0, 7.0]), st.sampled_from([0.0, 3.0]),
    st.sampled_from([0.0, 20.0]), st.integers(0, 5),
)  # fmt: skip
def test_nobody_serves_what_it_has_not_loaded(members, arm, s_per_block, delay_s, unseen_s, seed):
    world = replace(
        SMALL, n_blocks=6, duration_s=600.0, s_per_block=s_per_block, mean_choice_delay_s=delay_s,
        announce_delay_s=unseen_s, sample_every_s=20.0,
    )  # fmt: skip
    history = play(arm, world, members, seed)
    tps = {member.name: member.throughput_tps for member in members}
    widths = {member.name: min(6, member.n_blocks) for member in members}
    serving: dict[str, Span] = {}
    since: dict[str, tuple[float, set[int]]] = {name: (0.0, set()) for name in tps}
    for event in history:
        row = event.fields
        if event.kind == "servers":
            name = row["server"]
            before_s, had = since[name]
            if row["serving_start"] is None:
                serving.pop(name, None)
            else:
                serving[name] = Span(row["serving_start"], row["serving_end"])
                assert serving[name].length <= widths[name]
                fresh = len(set(serving[name]) - had)
                assert fresh * s_per_block <= event.t_s - before_s + 0.01, "not loaded yet"
                held = Span(row["start"], row["end"])
                if row["state"] == "online":
                    assert serving[name] == held
            since[name] = (event.t_s, set(serving.get(name, ())))
            if row["state"] in set(Ending):
                assert name not in serving, "a server that is gone serves nothing"
        elif event.kind == "reloads":
            if row["completed"]:
                assert row["kept"] + row["loaded"] == widths[row["server"]]
            assert row["redundant"] <= row["loaded"]
            assert 0 <= row["lost_block_s"] <= widths[row["server"]] * row["out_of_service_s"] + 0.01
        elif event.kind == "balance":
            values = [sum(tps[n] for n, span in serving.items() if block in span) for block in range(6)]
            assert row["swarm_tps"] == pytest.approx(min(values))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(ARMS))
def test_nothing_passes_the_bound(seed, arm):
    world = replace(SMALL, duration_s=600.0, s_per_block=0.0, mean_choice_delay_s=0.0)
    members = sine_members(world, seed)
    limit = {row["t"]: row["optimal_tps"] for row in rows(optimum(world, members, seed), "balance")}
    for row in rows(play(arm, world, members, seed), "balance"):
        assert row["swarm_tps"] <= limit[row["t"]] + 1e-6


def test_the_bound_that_pays_counts_a_server_once_it_can_have_loaded():
    members = [Member(f"s{i}", 6, 2.0, (Visit(100.0 * i, 900.0),)) for i in range(3)]
    world = replace(SMALL, duration_s=1000.0, s_per_block=10.0, sample_every_s=100.0)
    # two of them make the swarm whole, a third adds half of its throughput to every block, from 60 s after it came
    assert loaded_bounds(world, members) == pytest.approx([0, 1, 2, 3, 3, 3, 3, 3, 3, 0])


def test_the_oracle_pays_and_knows_who_leaves():
    # a alone holds the right half and leaves soon: the oracle moves one of the others there before it is gone
    leaving = Member("a", 6, 5.0, (Visit(0.0, 1000.0),))
    crowd = [Member(f"s{i}", 6, 1.0, (Visit(0.0, 1e9),)) for i in range(6)]
    world = replace(
        SMALL,
        lapses_per_hour=0.0,
        duration_s=1400.0,
        s_per_block=5.0,
        sample_every_s=10.0,
        announce_delay_s=60.0,
    )
    arm = Arm("oracle", Oracle(), keeps_overlap=True)
    history = simulate(world, [*crowd, leaving], arm, 0)
    late = [row["swarm_tps"] for row in rows(history, "balance") if row["t"] > 100]
    assert min(late) > 0
    assert [row for row in rows(history, "reloads") if row["old_start"] is not None and row["t"] < 1000]


def test_in_a_swarm_without_churn_what_is_announced_is_what_is_served():
    members = [Member(f"s{i}", 3, 1.0 + i, (Visit(0.0, 1e9),)) for i in range(8)]
    world = replace(SMALL, lapses_per_hour=0.0, duration_s=900.0)
    last = rows(play("join_only", world, members), "balance")[-1]
    assert last["swarm_tps"] == last["announced_swarm_tps"] > 0


def test_lapses_hide_servers_that_serve_on():
    members = [Member(f"s{i}", 6, 1.0, (Visit(0.0, 1e9),)) for i in range(4)]
    world = replace(SMALL, lapses_per_hour=20.0)
    found = rows(play("join_only", world, members), "balance")[5:]
    assert {row["swarm_tps"] for row in found} == {2.0}
    assert min(row["announced_swarm_tps"] for row in found) < 2.0


@dataclass(frozen=True)
class Looking(Told):
    """Notes how often garbage is looked for at each check."""

    def reconsider(self, view: SwarmView, server: Server, memory: Any, rng: Any) -> Decision:
        self.asked.append(gc.get_threshold()[0])
        return super().reconsider(view, server, memory, rng)


def test_while_a_swarm_is_simulated_garbage_is_looked_for_rarely():
    before, policy = gc.get_threshold(), Looking(Span(0, 2))
    run(policy, [member("a", 2, 1.0)])
    assert max(policy.asked) > 50 * before[0]
    assert gc.get_threshold() == before
