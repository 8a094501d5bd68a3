"""What is recorded of a swarm that rebalances, with a swarm that is played; and what a user may ask for."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge.events import EventLog
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.record.load import read_jsonl
from swarmlab.record.writer import HistoryWriter
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.rebalance_clients import Delivered, LoadClient
from swarmlab.scenarios.rebalance_plan import Place
from swarmlab.scenarios.rebalance_swarm import _start
from swarmlab.scenarios.rebalance_watch import Recording
from swarmlab.scenarios.registry import build
from swarmlab.settings import load
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

PLACES = {
    "a": Place("a", Span(0, 2), 100.0),
    "b": Place("b", Span(2, 4), 50.0),
    "c": Place("c", Span(2, 4), 50.0, free=False),
}


class PlayedSwarm:
    def __init__(self, folder):
        self.servers = {
            name: SimpleNamespace(
                peer_id=f"Q{name}", alive=True, state="online",
                spec=SimpleNamespace(options=(("events_path", str(folder / f"{name}.jsonl")),)),
            )
            for name in PLACES
        }  # fmt: skip
        self.records = {
            name: ServerRecord(f"Q{name}", place.span, place.tps) for name, place in PLACES.items()
        }
        self.fails = False

    def snapshot(self):
        if self.fails:
            raise SwarmFailed("no answer")
        return SwarmView(4, tuple(self.records.values()))

    def loses(self, name):
        del self.records[name]

    def moves(self, name, span, state):
        self.records[name] = ServerRecord(f"Q{name}", span, PLACES[name].tps, state)


@pytest.fixture
def played(tmp_path):
    history = HistoryWriter(tmp_path)
    swarm: Any = PlayedSwarm(tmp_path)
    recording = Recording(history, "petals", swarm, PLACES, Delivered(), "gap", seed=0)

    def rows(kind):
        path = tmp_path / f"{kind}.jsonl"
        return read_jsonl(path) if path.exists() else []

    return swarm, recording, rows


def test_a_look_records_what_is_announced_and_what_is_served(played):
    swarm, recording, rows = played
    swarm.moves("b", Span(2, 4), ServerState.JOINING)
    recording.look()
    blocks = rows("blocks")
    assert [row["announced_tps"] for row in blocks] == [100.0, 100.0, 100.0, 100.0]
    assert [row["served_tps"] for row in blocks] == [100.0, 100.0, 50.0, 50.0]
    assert [row["n_servers"] for row in blocks] == [1, 1, 1, 1]
    (balance,) = rows("balance")
    assert (balance["swarm_tps"], balance["announced_swarm_tps"], balance["n_moving"]) == (50.0, 100.0, 1)
    assert (balance["optimal_tps"], balance["bound_gap"], balance["quality_optimal"]) == (100.0, 0.0, 0.5)
    assert (balance["arm"], balance["scenario"]) == ("petals", "gap")


def test_a_dead_server_serves_nothing_however_long_its_records_live(played):
    swarm, recording, rows = played
    swarm.servers["a"].alive = False
    recording.look()
    assert rows("balance")[0]["swarm_tps"] == 0.0
    assert rows("balance")[0]["announced_swarm_tps"] == 100.0


def test_a_server_whose_records_are_held_back_serves_on(played):
    swarm, recording, rows = played
    swarm.loses("a")
    with recording.hiding("a"):
        recording.look()
    recording.look()
    assert [row["swarm_tps"] for row in rows("balance")] == [100.0, 0.0]


def test_changes_of_records_are_noted_once(played):
    swarm, recording, rows = played
    recording.look()
    recording.look()
    swarm.moves("b", Span(0, 2), ServerState.ONLINE)
    swarm.loses("c")
    recording.look()
    found = [(row["server"], row["state"], row["start"]) for row in rows("servers")]
    assert len(found) == 5
    assert set(found[3:]) == {("b", "online", 0), ("c", "unseen", None)}


def test_a_dht_that_does_not_answer_is_a_sample_less(played):
    swarm, recording, rows = played
    swarm.fails = True
    recording.look()
    swarm.fails = False
    recording.look()
    assert len(rows("balance")) == 1
    assert rows("logs")[0]["source"] == "looks"


def test_what_servers_tell_becomes_rows_at_the_time_when_it_happened(played, tmp_path):
    _, recording, rows = played
    since_s = time.monotonic()
    log = EventLog(tmp_path / "a.jsonl")
    log.emit("decisions", at_s=since_s + 1, moved=True, phase="check", policy="petals")
    log.emit("decisions", at_s=since_s + 2, moved=True, phase="choose", policy="petals")
    log.emit("reloads", at_s=since_s + 3, old_start=0, no_op=True, scenario="ignored")
    log.log("info", "hello")
    recording.tail()
    recording.tail()
    assert len(rows("decisions")) == 2
    (reload,) = rows("reloads")
    assert (reload["server"], reload["scenario"]) == ("a", "gap")
    assert reload["t"] - rows("decisions")[0]["t"] == pytest.approx(2.0, abs=1e-3)
    assert (rows("logs")[0]["source"], rows("logs")[0]["line"]) == ("a", "hello")
    assert len(recording.moved(since_s=since_s)) == 1
    assert recording.moved(since_s=since_s + 1.5) == []
    assert recording.reloaded("a", since_s=since_s)
    assert not recording.reloaded("b", since_s=since_s)


def test_a_phase_names_its_scenario_and_has_a_begin_and_an_end(played):
    _, recording, rows = played
    with recording.phase("wide_joins"):
        recording.look()
    assert [(row["scenario"], row["moment"]) for row in rows("phases")] == [
        ("wide_joins", "begin"), ("wide_joins", "end"),
    ]  # fmt: skip
    assert rows("balance")[0]["scenario"] == "wide_joins"


def test_a_server_that_begins_elsewhere_is_no_swarm_to_compare(played):
    swarm, recording, _ = played
    specs: Any = [None] * 3
    swarm.moves("b", Span(1, 3), ServerState.JOINING)
    with pytest.raises(SwarmFailed, match="b chose blocks 1:3 instead of 2:4"):
        _start(swarm, recording, list(PLACES.values()), specs)


def test_a_server_that_dies_at_its_start_is_told_with_its_log(played):
    swarm, recording, _ = played
    specs: Any = [None] * 3
    swarm.servers["a"].alive = False
    swarm.servers["a"].report = lambda: "server a ended with status 1"
    with pytest.raises(SwarmFailed, match="status 1"):
        _start(swarm, recording, list(PLACES.values()), specs)


def test_tokens_of_steps_that_were_not_reported_count_as_well(tmp_path):
    nothing: Any = None
    client = LoadClient(
        swarm=nothing, arm="petals", name="client-0", number=0, history=HistoryWriter(tmp_path), args={},
        bounds=nothing, seed=0, until_s=0.0, deadline_s=1.0, on_end=lambda _: None, where=lambda: "gap",
    )  # fmt: skip
    for session, token, ids in [(0, 0, [1]), (0, 10, [1]), (0, 11, [1]), (1, 0, [1, 2])]:
        client._write("steps", time.monotonic(), {"session": session, "token": token, "token_ids": ids})
    assert client.delivered._tokens == 12 + 2
    rows = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert {(row["scenario"], row["arm"], row["client"]) for row in rows} == {("gap", "petals", 0)}
    client.leave()
    client._write("steps", time.monotonic(), {"session": 2, "token": 0, "token_ids": [1]})
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 4


def test_tokens_per_second_are_of_the_time_between_two_looks():
    delivered = Delivered()
    delivered.add(5)
    assert delivered.rate_tps() is None
    assert delivered.rate_tps() == 0.0
    delivered.add(100)
    assert (delivered.rate_tps() or 0.0) > 0


def test_the_default_is_all_scenarios_and_all_arms(tmp_path):
    settings, _ = load(["+exp=rebalance", f"models_dir={tmp_path}"])
    experiment = build(settings)
    assert experiment.parts == list(plan.SCENARIOS)
    assert experiment.n_units == 3 * 5 + 2
    assert "1 s stands for 15 s" in experiment.describe()
    under_load, _ = load(["+exp=rebalance_under_load", f"models_dir={tmp_path}"])
    assert build(under_load).parts == list(plan.SCENARIOS[:3])
    assert under_load.rebalance.clients == 3


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("model.n_blocks=25", "model.n_blocks"),
        ("scenarios=[gap,flood]", "scenarios"),
        ("arms=[join_only]", "arms"),
        ("rebalance.time_scale=0", "rebalance.time_scale"),
        ("rebalance.clients=200", "swarm.attn_cache_tokens"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, override, field):
    with pytest.raises(BadInput) as refused:
        build(load(["+exp=rebalance", f"models_dir={tmp_path}", override])[0])
    assert refused.value.field == field


def test_the_slow_disk_alone_needs_an_arm_that_it_is_for(tmp_path):
    with pytest.raises(BadInput):
        build(load(["+exp=rebalance", f"models_dir={tmp_path}", "arms=[pinned]", "scenarios=[slow_disk]"])[0])
