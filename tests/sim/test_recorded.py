"""Populations from recordings of real swarms."""

from __future__ import annotations

import json
import math

import pytest

from swarmlab.errors import BadInput
from swarmlab.placement.registry import POLICIES
from swarmlab.scenarios.churn import build_churn
from swarmlab.settings import ROOT, load
from swarmlab.sim.population import Ending, Visit
from swarmlab.sim.recorded import recorded
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.simulate import simulate
from swarmlab.sim.world import Arm
from swarmlab.types import Span
from tests.sim.swarms import rows, states

RECORDING = "the folder of a run of +exp=record_dht, or its views.jsonl"


def server(peer, start, end, state="online", tps=10.0):
    return {"peer_id": peer, "span": [start, end], "throughput_tps": tps, "state": state}


def written(path, looks):
    """Looks as (seconds, servers), in a file as +exp=record_dht writes it."""
    lines = [
        {
            "t": at_s,
            "arm": "swarm",
            "n_blocks": 8,
            "seen_at_s": 1000.0 + at_s,
            "servers": servers,
            "problems": 0,
        }
        for at_s, servers in looks
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def recording(tmp_path):
    stays, goes = server("stays", 0, 4), server("goes", 4, 8)
    back, moved = server("back", 4, 8, tps=3.0), server("moved", 0, 2)
    return written(
        tmp_path / "views.jsonl",
        [
            (0.0, [stays, goes, back, moved]),
            (10.0, [stays, goes, moved]),  # back is missing once
            (20.0, [stays, back, server("late", 2, 5)]),
            (
                30.0,
                [stays, back, server("late", 2, 5), server("moved", 6, 8), server("off", 0, 1, "offline")],
            ),
        ],
    )


def test_who_was_there_when_and_with_what(recording):
    found = recorded(recording)
    assert found.n_blocks == 8
    members = {member.name: member for member in found.members}
    assert sorted(members) == ["back", "goes", "late", "moved", "stays"]
    assert members["stays"].visits == (Visit(0.0, math.inf, Ending.CRASH),)
    assert members["goes"].visits == (Visit(0.0, 10.0, Ending.CRASH),)
    assert members["back"].visits == (Visit(0.0, math.inf, Ending.CRASH),), "a lost record, not a departure"
    assert members["moved"].visits == (Visit(0.0, 10.0, Ending.CRASH), Visit(30.0, math.inf, Ending.CRASH))
    assert members["late"].visits == (Visit(20.0, math.inf, Ending.CRASH),)
    assert (members["back"].n_blocks, members["back"].throughput_tps, members["back"].held) == (
        4,
        3.0,
        Span(4, 8),
    )
    assert members["late"].held is None, "it came later, so it has to choose and load"


def test_a_simulation_begins_with_the_blocks_that_were_held(recording):
    found = recorded(recording)
    world = SimSettings(n_blocks=8, duration_s=60.0, warm_up_s=0.0, sample_every_s=5.0)
    history = simulate(world, found.members, Arm("join_only", POLICIES["join_only"]()), 0)
    assert states(history, "back")[0] == (0.0, "online", "4:8", "4:8")
    assert states(history, "late")[0][:2] != (0.0, "online")
    assert rows(history, "balance")[0]["swarm_tps"] == 10.0


def test_any_simulated_experiment_starts_from_it(recording):
    settings, _ = load(["+exp=churn", f"sim.from_record={recording}", "sim.duration_s=7200"])
    experiment = build_churn(settings)
    assert (experiment.sim.n_blocks, experiment.sim.n_servers) == (8, 5)
    assert experiment.draw(experiment.sim, 7) == recorded(recording).members


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "there is no look in it"),
        ("nonsense\n\n{}\n", "given/views.jsonl line 1 is damaged"),
        ('{"n_blocks": 8}\n', "its rows are something else (KeyError: 'seen_at_s')"),
        ('{"n_blocks": 8, "seen_at_s": 0, "servers": []}\n', "it shows no server"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, content, why):
    path = tmp_path / "given" / "views.jsonl"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(BadInput) as refused:
        recorded(path)
    assert str(refused.value) == f"sim.from_record: {str(path)!r} is not usable; allowed: {RECORDING}; {why}"


@pytest.mark.parametrize("given", ["none", "", "folder"])
def test_a_missing_recording_is_refused_before_anything_starts_and_with_one_message(tmp_path, given):
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / given) if given else ""
    settings, _ = load(["+exp=churn", f"sim.from_record={path}"])
    with pytest.raises(BadInput) as refused:
        build_churn(settings)
    assert str(refused.value) == f"sim.from_record: {path!r} is not usable; allowed: {RECORDING}"


def test_a_run_of_another_experiment_is_no_recording():
    with pytest.raises(BadInput, match=r"; this run is of scale$") as refused:
        recorded(ROOT / "results" / "tables" / "scale")
    assert refused.value.field == "sim.from_record"


def test_one_recording_is_one_population(recording):
    settings, _ = load(["+exp=churn", f"sim.from_record={recording}", "sim.repeats=2"])
    with pytest.raises(BadInput, match=r"sim\.repeats"):
        build_churn(settings)
