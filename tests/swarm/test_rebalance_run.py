"""``python -m swarmlab.run +exp=rebalance`` on real swarms: the report's case, for the original and for ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from swarmlab.record.load import load_run
from tests.swarm.command import ROOT, run_once

RUN_S = 300

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(RUN_S + 60)]


@pytest.fixture(scope="module")
def ran(tiny_model, tmp_path_factory):
    yield from run_once(
        tmp_path_factory.mktemp("rebalance"), tiny_model, "rebalance",
        "arms=[petals,swarmlab]", "scenarios=[records_lost]", "rebalance.read_delay_s=0.2",
        "rebalance.settle_s=10", limit_s=RUN_S,
    )  # fmt: skip


def test_the_original_reloads_what_it_had_and_ours_stays(ran):
    assert ran.process.returncode == 0, ran.err[-3000:]
    found = json.loads((ran.runs[0] / "summary.json").read_text())["scenarios"]["records_lost"]
    assert found["petals"]["noop_reloads"] >= 1
    assert found["petals"]["redundant_loads"] >= 2
    assert (found["swarmlab"]["moves"], found["swarmlab"]["noop_reloads"]) == (0, 0)
    assert found["petals"]["tokens_wrong"] == found["swarmlab"]["tokens_wrong"] == 0


def test_a_reload_of_the_original_is_timed_from_outside(ran):
    moves = [row for row in load_run(ran.runs[0]).history("reloads") if row["old_start"] is not None]
    assert {row["arm"] for row in moves} == {"petals"}
    for row in moves:
        assert row["loaded"] == row["redundant"] == row["new_end"] - row["new_start"]
        assert row["out_of_service_s"] > row["read_s"] > 0.2 * row["loaded"]
        assert row["bytes_read"] > 0


def test_both_arms_began_in_the_same_places(ran):
    run = load_run(ran.runs[0])
    starts = {
        arm: {
            (row["server"], row["new_start"], row["new_end"])
            for row in run.history("reloads")
            if row["arm"] == arm and row["old_start"] is None
        }
        for arm in ("petals", "swarmlab")
    }
    assert starts["petals"] == starts["swarmlab"]
    assert len(starts["petals"]) == 6


def test_it_leaves_nothing_on_the_machine(ran):
    assert ran.left == []


def test_it_can_be_played_to_simulated_swarms(ran, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable, "-W", "ignore", "-m", "swarmlab.run", "+exp=sim_vs_real", "arms=[petals,swarmlab]",
        f"rebalance.run_dir={ran.runs[0]}", "rebalance.simulations=30", f"results_dir={tmp_path}",
    ]  # fmt: skip
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    (run_dir,) = (path for path in (tmp_path / "sim_vs_real").iterdir() if not path.is_symlink())
    arms = json.loads((run_dir / "summary.json").read_text())["arms"]
    assert arms["petals"]["noop_reloads_real"] >= 1
    assert arms["petals"]["noop_reloads_high"] >= 1
    assert arms["swarmlab"]["moves_high"] == 0
