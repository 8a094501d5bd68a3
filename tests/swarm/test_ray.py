"""The failover experiment on a Ray cluster of this one machine, as a user types it; and its network emulated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from swarmlab.record.load import load_run
from swarmlab.swarm.ready import wait_for
from tests.swarm.leftovers import Machine, short_folder

ROOT = Path(__file__).resolve().parents[2]
RTT_S = 0.005
RUN_S = 400
END_S = 90  # a tenth of it on a machine with nothing else to do
COMMAND = (
    sys.executable, "-W", "ignore", "-m", "swarmlab.run", "+exp=failover", "scenarios=[kill_last]",
    "arms=[swarmlab]", "cluster=ray",
)  # fmt: skip

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(RUN_S + 60)]


@pytest.fixture(scope="module")
def ray_run(tiny_model, tmp_path_factory):
    """One run, with the servers' files kept from the run folder as if they were on another machine."""
    folder, machine = tmp_path_factory.mktemp("ray"), Machine(short_folder())
    done = subprocess.run(
        [
            *COMMAND, "cluster.share_files=false", "network=100mbit_5ms",
            f"models_dir={tiny_model.path.parent}", "results_dir=runs",
        ],
        env={**machine.env(), "PYTHONPATH": str(ROOT / "src")},
        cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    yield done, folder / "runs/failover/latest", machine.left()
    shutil.rmtree(machine.temp_dir)


@pytest.fixture(scope="module")
def ended_run(tiny_model, tmp_path_factory):
    """One that is told to end while tokens are generated, with all of its process group, as a batch system does it."""
    folder, machine = tmp_path_factory.mktemp("ended"), Machine(short_folder())
    run = subprocess.Popen(
        [*COMMAND, f"models_dir={tiny_model.path.parent}", "results_dir=runs"],
        env={**machine.env(), "PYTHONPATH": str(ROOT / "src")},
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: run.poll() is not None or steps_of(folder), RUN_S, "the first token")
        with suppress(ProcessLookupError):  # it has failed; the test shows what it said
            os.killpg(run.pid, signal.SIGTERM)
        out, _ = run.communicate(timeout=END_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    paths = [path for path in folder.glob("runs/failover/*") if not path.is_symlink()]
    yield run.returncode, out, paths, machine.left()
    shutil.rmtree(machine.temp_dir)


def steps_of(folder):
    return [path for path in folder.glob("runs/failover/*/history/steps.jsonl") if path.stat().st_size]


def test_a_run_whose_whole_group_is_told_to_end_does_so_in_order(ended_run):
    code, out, paths, left = ended_run
    assert code == 128 + signal.SIGTERM, out
    told = json.loads((paths[0] / "run.json").read_text())
    assert (told["status"], told["reason"]) == ("interrupted", "SIGTERM")
    assert left == []


def test_the_session_survives_as_it_does_on_this_machine(ray_run):
    """Identical to plain transformers and to a failure-free run, which is what ``cluster=local`` is judged by, too."""
    done, path, _ = ray_run
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(path)
    assert run.info["cluster"] == "ray"
    (outcome,) = [row for row in run.history("outcomes") if row["arm"] == "swarmlab"]
    assert outcome["outcome"] == "done"
    assert json.loads((path / "summary.json").read_text())["arms"]["swarmlab"]["outcome"] == "identical"
    stages = {row["stage"]: row for row in run.history("faults") if row["arm"] == "swarmlab"}
    assert list(stages) == ["setup", "inject", "confirm", "heal", "cleanup"]
    assert all(row["ok"] for row in stages.values())


def test_logs_of_the_other_machine_are_gathered(ray_run):
    _, path, _ = ray_run
    servers = {row["server"] for row in load_run(path).history("servers")} - {
        "nursery",
        "bootstrap",
        "cluster",
    }
    servers -= {"nursery-0"}
    assert len(servers) >= 3
    assert all("Started" in (path / "logs" / f"{name}.log").read_text() for name in servers)


def test_the_network_is_emulated_and_says_so(ray_run):
    _, path, _ = ray_run
    run = load_run(path)
    assert run.info["network"] == "100 Mbit/s, 5 ms round trip (emulated)"
    steps = [
        row["seconds"]
        for row in run.history("steps")
        if row["arm"] == "reference" and row["phase"] == "decode"
    ]
    # from the client through three servers and back: four messages, each half a round trip
    assert min(steps) >= 4 * RTT_S / 2


def test_nothing_is_left_of_the_swarm_or_of_ray(ray_run):
    _, _, left = ray_run
    assert left == []
