"""Clients of the simulated experiments as a user asks for them: recorded, judged from the record, drawn."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from swarmlab import check
from swarmlab.analysis.checks import Verdict
from swarmlab.errors import BadInput
from swarmlab.figures import draw_run
from swarmlab.record.load import load_run
from swarmlab.report.page import write_report
from swarmlab.scenarios.churn import N_CLIENTS, build_churn
from swarmlab.settings import load
from tests.scenarios.test_placement_experiments import copied, played

ARMS = ("join_only", "petals")
SMALL = [
    "+exp=churn", "arms=[join_only,petals]", "sim.n_blocks=12", "sim.capacity_min=2", "sim.capacity_max=6",
    "sim.duration_s=1800", "sim.warm_up_s=600", "sim.optimum_kicks=0", "sim.clients.n_clients=3", "sim.repeats=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return played([*SMALL, "scenarios=[few,few_lapses_clients]"], tmp_path_factory.mktemp("churn"))


@pytest.fixture
def expected(tmp_path):
    wanted = {"few_lapses_clients": {"arms": {arm: {"delivered_tps": {"min": 0.5}} for arm in ARMS}}}
    path = tmp_path / "expected.yaml"
    path.write_text(yaml.safe_dump({"scenarios": wanted}))
    return path


def clients_of(*overrides):
    experiment = build_churn(load(["+exp=churn", *overrides])[0])
    return {
        name: changes.get("clients", experiment.sim.clients).n_clients
        for name, changes in experiment.variants.items()
    }


def test_only_some_scenarios_have_clients_unless_they_are_asked_for():
    assert set(clients_of().values()) == {0}
    assert clients_of("scenarios=[few,few_clients]") == {"few": 0, "few_clients": N_CLIENTS}
    assert clients_of("scenarios=[few,few_clients]", "sim.clients.n_clients=7") == {
        "few": 7,
        "few_clients": 7,
    }


def test_what_clients_got_is_judged_from_the_record(run, expected):
    summary = check.judge(run, expected=expected)
    assert summary.verdict is Verdict.HOLDS, summary.reasons
    for arm in ARMS:
        metrics = summary.scenarios["few_lapses_clients"][arm]
        assert metrics["repeats"] == 2
        assert metrics["delivered_tps"] > 0
        assert metrics["delivered_tps_low"] <= metrics["delivered_tps"] <= metrics["delivered_tps_high"]
        assert 0 <= metrics["seeking_share"] <= metrics["stalled_share"] < 1
    assert "delivered_tps" not in summary.scenarios["few_lapses_clients"]["optimal"]
    steps = load_run(run).history("sessions")
    assert {row["client"] for row in steps} == {0, 1, 2}


def test_tokens_that_were_never_recorded_are_missed(run, expected, tmp_path):
    path = copied(run, tmp_path)
    (path / "history" / "delivered.jsonl").unlink()
    shutil.rmtree(path / "tables", ignore_errors=True)
    assert check.judge(path, expected=expected).verdict is Verdict.UNKNOWN


def test_there_is_a_figure_of_them_and_a_report_with_failovers(run, tmp_path):
    check.judge(run)
    stems = {path.stem for path in draw_run(run)}
    assert stems == {"churn"}, "that of the clients, where all scenarios have some"
    failover = json.loads((run / "history" / "failovers.jsonl").read_text().splitlines()[0])
    assert failover["failed"][0]["cause"] in ("broken", "hung", "stale")
    assert "went on through" in write_report(run, tmp_path / "report.html").read_text()


@pytest.mark.parametrize("setting", ["n_clients=-1", "n_clients=many", "patience_s=0", "colour=red"])
def test_clients_that_cannot_be_cost_one_line(setting):
    with pytest.raises(BadInput, match=f"sim.clients.{setting.partition('=')[0]}"):
        build_churn(
            load([*SMALL, f"+sim.clients.{setting}" if "colour" in setting else f"sim.clients.{setting}"])[0]
        )
