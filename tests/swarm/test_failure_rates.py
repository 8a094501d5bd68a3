"""+exp=failure_rates on a real swarm: stages are reset, each time confirmed, and every token stays right."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.failure_rates import Record, measure
from swarmlab.analysis.failure_rates_checks import check_failure_rates
from swarmlab.analysis.failure_rates_grid import Cell
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.scenarios.failure_rates import FailureRates, stages
from swarmlab.settings import ClientSettings
from swarmlab.swarm.spec import SwarmSpec
from swarmlab.types import Span

LOSSY = Cell(24, 0.05)


class Silent:
    def on_state(self, name, state, detail): ...
    def begin(self, scenario, arm): ...
    def end(self, scenario, arm, outcome, detail): ...


def test_blocks_are_split_as_in_the_paper():
    assert [span.length for span in stages(30).values()] == [8, 7, 8, 7]
    assert list(stages(16).values()) == [Span(0, 4), Span(4, 8), Span(8, 12), Span(12, 16)]
    assert [span.length for span in stages(5).values()] == [2, 1, 1, 1]


@pytest.mark.swarm
def test_sessions_are_reset_on_real_servers_and_every_token_is_right(tiny_model, tmp_path):
    experiment = FailureRates(
        checkpoint=tiny_model,
        arms=["restart", "cacheless", "swarmlab", "petals"],
        lengths=[LOSSY.length],
        rates=[LOSSY.p],
        repeats=1,
        budget_s=600.0,
        bounded_s=5.0,
        swarm=SwarmSpec(tiny_model.path, tiny_model.dht_prefix, tiny_model.n_blocks, ()),
        throughput_tps=100.0,
        client=ClientSettings(max_retries=2).as_petals(),
        recovery=asdict(RecoverySettings()),
        seed=0,
    )
    experiment.check()
    run_dir = RunDir.create(
        tmp_path, "failure_rates", config={}, argv=[], overrides=[], seed=0, world="real", arms=experiment.arms,
        model=experiment.model, device="cpu",
    )  # fmt: skip
    run_dir.update(scenarios=experiment.parts)
    with run_dir:
        experiment.run(run_dir, Silent())
    run = load_run(run_dir.path)
    record = Record({kind: run.history(kind) for kind in run.kinds})
    numbers = measure(record)

    cells = numbers["scenarios"][LOSSY.name]
    for arm in ("cacheless", "swarmlab"):
        assert (cells[arm]["outcome"], cells[arm]["tokens_identical_ratio"]) == ("done", 1.0)
        assert cells[arm]["failures"] == cells[arm]["resets_confirmed"] > 0
    assert cells["petals"]["outcome"] == "exception"
    assert {row["cause"] for row in record.rows("failovers", LOSSY.name, "swarmlab")} == {"reset"}
    freed = [
        row["detail"] for row in record.rows("faults", LOSSY.name, "swarmlab") if row["stage"] == "confirm"
    ]
    assert any(detail.endswith("-> 0 bytes held") and ": 0 ->" not in detail for detail in freed)
    findings = check_failure_rates(record, numbers, {"cells": {}, "arms": {}}, run.info)
    against = [str(finding) for finding in findings if finding.verdict is not Verdict.HOLDS]
    assert conclude(findings) is Verdict.HOLDS, against
