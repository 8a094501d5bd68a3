"""Recording a real swarm, and a simulation that starts from it."""

from __future__ import annotations

import pytest

from swarmlab import check
from swarmlab.analysis.checks import Verdict
from swarmlab.record.load import load_run
from swarmlab.sim.recorded import recorded
from tests.scenarios.test_placement_experiments import played

pytestmark = pytest.mark.swarm


def test_a_recorded_swarm_is_where_a_simulation_begins(tiny_swarm, tmp_path):
    peers = f"initial_peers=[{tiny_swarm.initial_peers[0]}]"
    path = played(
        ["+exp=record_dht", peers, "minutes=0.02", "recorder.every_s=1", "recorder.hash_peers=true"], tmp_path
    )
    summary = check.judge(path)
    assert summary.verdict is Verdict.HOLDS, summary.reasons
    assert summary.arms["swarm"]["servers"] == 5
    known = {record.peer_id for record in tiny_swarm.snapshot().servers}
    assert not any(peer in (path / "history" / "views.jsonl").read_text() for peer in known)
    assert load_run(path).info["model"]["n_blocks"] == 16
    found = recorded(path)
    assert found.n_blocks == 16
    spans = sorted(member.held for member in found.members if member.held is not None)
    assert spans == sorted(record.span for record in tiny_swarm.snapshot().servers)
    again = played(
        ["+exp=churn", f"sim.from_record={path}", "scenarios=complete", "arms=[join_only]", "sim.duration_s=120",
         "sim.warm_up_s=0"], tmp_path / "sim",
    )  # fmt: skip
    balance = [row for row in load_run(again).history("balance") if row["arm"] == "join_only"]
    assert balance[0]["n_active"] == 5
    assert balance[0]["swarm_tps"] > 0, "all blocks are served from the beginning"
