"""``python -m swarmlab.run +exp=failover_soak`` on a real swarm: a short one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from swarmlab.analysis.soak_sessions import wrong_by_ids
from swarmlab.record.load import load_run
from tests.swarm.command import ROOT, run_once

MINUTES = 0.8
RUN_S = 300

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(RUN_S + 60)]


@pytest.fixture(scope="module")
def soak(tiny_model, tmp_path_factory):
    yield from run_once(
        tmp_path_factory.mktemp("soak"), tiny_model, "failover_soak",
        f"minutes={MINUTES}",
        # more than by default: also a slow machine is to see enough of them in a short time
        "soak.failures_per_minute=15", "soak.away_max_s=4", limit_s=RUN_S,
    )  # fmt: skip


def test_no_token_is_wrong_though_servers_fail(soak):
    summary = json.loads((soak.runs[0] / "summary.json").read_text())
    assert soak.process.returncode == 0, soak.err[-3000:]
    assert summary["verdict"] == "holds"
    found = summary["arms"]["swarmlab"]
    assert (found["tokens_wrong"], found["sessions_not_identical"]) == (0, 0)
    assert found["failures_injected"] >= 5
    assert found["failures_survived"] >= 1
    assert found["slowdowns"] >= 5
    assert found["tokens"] > 100


def test_it_leaves_nothing_on_the_machine(soak):
    assert soak.left == []


def test_every_session_was_compared_and_every_fault_undone(soak):
    run = load_run(soak.runs[0])
    sessions = run.history("sessions")
    assert {row["client"] for row in sessions} == {0, 1}
    assert all(row["tokens"] == row["tokens_expected"] > 0 for row in sessions)
    assert [wrong_by_ids(row) for row in sessions] == [0] * len(sessions)
    assert all(sum(map(len, row["token_ids"])) == row["tokens"] for row in sessions)
    faults = run.history("faults")
    undone = [row for row in faults if row["stage"] == "heal" and row["ok"]]
    assert len(undone) == sum(row["stage"] == "inject" for row in faults)
    assert sum(row["outcome"] == "identical" for row in sessions) == len(sessions)


def test_it_can_be_judged_and_drawn_again(soak):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for module in ("check", "figures"):
        command = [sys.executable, "-W", "ignore", "-m", f"swarmlab.{module}", str(soak.runs[0])]
        assert subprocess.run(command, env=env, capture_output=True, timeout=60, check=False).returncode == 0
