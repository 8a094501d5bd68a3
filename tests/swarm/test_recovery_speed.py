"""+exp=recovery_speed on a real swarm: two servers die at once, standbys take over, every recovery has its floor."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.recovery_speed import Record, measure
from swarmlab.analysis.recovery_speed_checks import check_recovery_speed
from swarmlab.analysis.recovery_speed_grid import Cell
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.scenarios.recovery_speed import RecoverySpeed
from swarmlab.scenarios.recovery_speed_build import SERVERS
from swarmlab.settings import ClientSettings
from swarmlab.swarm.spec import SwarmSpec
from swarmlab.types import Span

ARMS = ["swarmlab", "swarmlab_standby"]
CELL = Cell(60, 2)


class Silent:
    def on_state(self, name, state, detail): ...
    def begin(self, scenario, arm): ...
    def end(self, scenario, arm, outcome, detail): ...


@pytest.mark.swarm
def test_two_spans_die_at_once_and_are_rebuilt_side_by_side(tiny_model, tmp_path):
    experiment = RecoverySpeed(
        checkpoint=tiny_model,
        arms=ARMS,
        cells={arm: [CELL] for arm in ARMS},
        repeats=1,
        servers={name: Span(*span) for name, span in SERVERS.items()},
        swarm=SwarmSpec(tiny_model.path, tiny_model.dht_prefix, tiny_model.n_blocks, ()),
        throughput_tps=100.0,
        client=ClientSettings().as_petals(),
        recovery=asdict(RecoverySettings()),
        deadline_s=90.0,
        tolerance=3e-4,
        floor_repeats=2,
        seed=0,
    )
    experiment.check()
    run_dir = RunDir.create(
        tmp_path, "recovery_speed", config={}, argv=[], overrides=[], seed=0, world="real", arms=ARMS,
        model=experiment.model, device="cpu",
    )  # fmt: skip
    with run_dir:
        experiment.run(run_dir, Silent())
    run = load_run(run_dir.path)
    record = Record({kind: run.history(kind) for kind in run.kinds})
    numbers = measure(record, experiment.cells)
    findings = check_recovery_speed(record, numbers, {"all": {}, "cells": {}}, experiment.cells, run.info)
    against = [str(finding) for finding in findings if finding.verdict is not Verdict.HOLDS]
    assert not any(finding.verdict is Verdict.FAILS for finding in findings), against
    assert against == [], against
    assert conclude(findings) is Verdict.UNKNOWN  # nothing was expected of it

    plain, standby = (numbers["scenarios"][CELL.name][arm] for arm in ARMS)
    assert plain["outcome"] == standby["outcome"] == "identical"
    assert plain["tokens_replayed"] == 2 * CELL.history
    [repeat] = record.repeats(CELL.name, "swarmlab")
    first, second = repeat.failovers
    begins = [row["t"] - row["total_s"] for row in (first, second)]
    assert max(begins) < min(first["t"], second["t"]), "one was rebuilt after the other"
    assert standby["from_standby_share"] == 1.0
    assert standby["tokens_replayed"] < plain["tokens_replayed"] / 2
    assert standby["standby_bytes"] > 3 * CELL.history * 64 * 4  # of three spans, inputs and outputs
    assert plain["standby_tokens"] == 0
