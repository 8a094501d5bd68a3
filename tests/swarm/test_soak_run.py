"""``python -m swarmlab.run +exp=failover_soak`` on a real swarm: a short one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarmlab.record.load import load_run
from tests.swarm.leftovers import Machine, short_folder

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 0.8
RUN_S = 300

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(RUN_S + 60)]


@pytest.fixture(scope="module")
def soak(tiny_model, tmp_path_factory):
    """The command, what it printed, its run folder, and what it left on the machine."""
    folder, machine = tmp_path_factory.mktemp("soak"), Machine(short_folder())
    command = [
        sys.executable, "-W", "ignore", "-m", "swarmlab.run", "+exp=failover_soak", f"minutes={MINUTES}",
        f"models_dir={tiny_model.path.parent}", "results_dir=runs",
        # more than by default: also a slow machine is to see enough of them in a short time
        "soak.failures_per_minute=15", "soak.away_max_s=4",
    ]  # fmt: skip
    env = {**machine.env(), "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    try:
        out, _ = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
        process.wait()
    left = machine.left()
    machine.temp_dir.rmdir()
    (run_dir,) = (path for path in (folder / "runs" / "failover_soak").iterdir() if not path.is_symlink())
    return process.returncode, out, run_dir, left


def test_no_token_is_wrong_though_servers_fail(soak):
    code, out, run_dir, _ = soak
    summary = json.loads((run_dir / "summary.json").read_text())
    assert code == 0, out[-3000:]
    assert summary["verdict"] == "holds"
    found = summary["arms"]["swarmlab"]
    assert (found["tokens_wrong"], found["sessions_not_identical"]) == (0, 0)
    assert found["failures_injected"] >= 5
    assert found["failures_survived"] >= 1
    assert found["slowdowns"] >= 5
    assert found["tokens"] > 100


def test_it_leaves_nothing_on_the_machine(soak):
    assert soak[3] == []


def test_every_session_was_compared_and_every_fault_undone(soak):
    run = load_run(soak[2])
    sessions = run.history("sessions")
    assert {row["client"] for row in sessions} == {0, 1}
    assert all(row["tokens"] == row["tokens_expected"] > 0 for row in sessions)
    faults = run.history("faults")
    undone = [row for row in faults if row["stage"] == "heal" and row["ok"]]
    assert len(undone) == sum(row["stage"] == "inject" for row in faults)
    assert sum(row["outcome"] == "identical" for row in sessions) == len(sessions)


def test_it_can_be_judged_and_drawn_again(soak):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for module in ("check", "figures"):
        command = [sys.executable, "-W", "ignore", "-m", f"swarmlab.{module}", str(soak[2])]
        assert subprocess.run(command, env=env, capture_output=True, timeout=60, check=False).returncode == 0
