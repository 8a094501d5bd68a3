"""Stored runs of +exp=rebalance and what follows from them: verdicts, tables, figures, and simulations of them."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from rich.console import Console

from swarmlab import check
from swarmlab.errors import BadInput
from swarmlab.figures import draw_run
from swarmlab.judges import rebalance
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.progress import ConsoleProgress
from swarmlab.scenarios.registry import build
from swarmlab.settings import load
from swarmlab.swarm.rebalancing import RebalanceSettings
from tests.analysis.rebalance_rows import both_arms

ALL = ["records_lost", "gap", "wide_joins", "slow_disk"]


def slow_too(story, *, ours_s=0.0, theirs_s=101.0):
    story.scenario("petals", "slow_disk").move((0, 20), (2, 22), out_s=theirs_s, server="mover")
    story.scenario("swarmlab", "slow_disk")
    return story.move((0, 20), (2, 22), out_s=ours_s, kept=True, server="mover", lost_block_s=ours_s * 20)


@pytest.fixture
def stored(tmp_path):
    def store(story, *, exp="rebalance", scenarios=ALL, arms=("petals", "swarmlab")):
        config = {"rebalance": asdict(RebalanceSettings())}
        run_dir = RunDir.create(
            tmp_path / "runs", exp, config=config, argv=[], overrides=[], seed=0, world="real", arms=list(arms),
            model={"id": "tiny_llama", "hash": "0"},
        )  # fmt: skip
        run_dir.update(scenarios=list(scenarios))
        with run_dir:
            for kind, rows in story.rows.items():
                for row in rows:
                    fields = {name: value for name, value in row.items() if name not in ("t", "arm")}
                    run_dir.history.write(kind, row["arm"], at_s=run_dir.history.start_s + row["t"], **fields)
        return run_dir.path

    return store


def test_what_the_experiment_expects_holds(stored):
    summary = check.judge(stored(slow_too(both_arms())))
    assert summary.verdict.value == "holds", summary.reasons
    assert summary.scenarios["slow_disk"]["petals"]["out_of_service_over_swarmlab"] == pytest.approx(1010.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ours_s": 12.0}, "kept_out_of_service_s_max"),
        ({"theirs_s": 0.5}, "out_of_service_over_swarmlab"),
    ],
)
def test_a_slow_swap_does_not_hold(stored, change, reason):
    summary = check.judge(stored(slow_too(both_arms(), **change)))
    assert summary.verdict.value == "fails"
    assert any(reason in one for one in summary.reasons)


def test_a_ratio_of_two_arms_is_asked_of_runs_with_both(stored):
    story = slow_too(both_arms())
    for kind, rows in story.rows.items():
        story.rows[kind] = [row for row in rows if row["arm"] == "petals"]
    assert check.judge(stored(story, arms=["petals"])).verdict.value == "holds"


def test_a_no_op_of_ours_does_not_hold(stored):
    story = slow_too(both_arms())
    ours = [row for row in story.rows["reloads"] if row["arm"] == "swarmlab" and row["scenario"] == "gap"]
    ours[0] |= {"no_op": True, "redundant": 10}
    summary = check.judge(stored(story))
    assert summary.verdict.value == "fails"
    assert any("noop_reloads" in one for one in summary.reasons)


def test_a_fault_that_was_not_confirmed_makes_the_run_unknown(stored):
    story = slow_too(both_arms())
    next(row for row in story.rows["faults"] if row["stage"] == "confirm")["ok"] = False
    assert check.judge(stored(story)).verdict.value == "unknown"


def test_a_damaged_record_is_no_pass(stored):
    story = slow_too(both_arms())
    for row in story.rows["reloads"]:
        del row["new_start"]
    assert check.judge(stored(story)).verdict.value == "unknown"


def test_under_load_no_token_may_be_wrong_in_any_arm(stored):
    story, timeline = both_arms(), ALL[:3]
    for row in story.rows["sessions"]:
        row["tokens"] = 600
    assert check.judge(stored(story, exp="rebalance_under_load", scenarios=timeline)).verdict.value == "holds"
    story.rows["sessions"][0]["tokens_wrong"] = 1
    summary = check.judge(stored(story, exp="rebalance_under_load", scenarios=timeline))
    assert summary.verdict.value == "fails"
    assert any("petals / tokens_wrong" in one for one in summary.reasons)


def test_a_judged_run_can_be_shown_and_drawn(stored):
    path = stored(slow_too(both_arms()))
    summary = check.judge(path)
    console = Console(width=80, record=True)
    check.show(summary, console, rebalance.texts(load_run(path)))
    text = console.export_text()
    assert "swarmlab" in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    names = {figure.name for figure in draw_run(path)}
    assert {"rebalance.png", "rebalance_blocks.png", "rebalance_cost.png", "rebalance_quality.pdf"} <= names


def test_expectations_without_scenarios_are_refused(stored, tmp_path):
    expected = tmp_path / "expected.yaml"
    expected.write_text("arms: {}\n")
    with pytest.raises(BadInput):
        check.judge(stored(both_arms()), expected=expected)


@pytest.fixture
def simulated(stored, tmp_path):
    """A stored run, and the simulations of it."""
    story = slow_too(both_arms())
    story.add("blocks", 1.0, "petals", "records_lost", block=23, announced_tps=1.0)
    overrides = [
        "+exp=sim_vs_real", f"rebalance.run_dir={stored(story)}", "arms=[petals,swarmlab]", "rebalance.simulations=3",
    ]  # fmt: skip
    settings, resolved = load(overrides)
    experiment = build(settings)
    run_dir = RunDir.create(
        tmp_path / "runs", "sim_vs_real", config=resolved, argv=[], overrides=overrides, seed=0,
        world=experiment.world, arms=settings.arms, model=experiment.model,
    )  # fmt: skip
    run_dir.update(scenarios=list(experiment.parts))
    with run_dir:
        experiment.run(run_dir, ConsoleProgress(experiment.n_units, Console(quiet=True)))
    return run_dir.path


def test_a_stored_run_is_played_to_simulated_swarms(simulated):
    summary = check.judge(simulated)
    petals, ours = summary.arms["petals"], summary.arms["swarmlab"]
    assert (petals["moves_real"], ours["moves_real"]) == (2, 1)
    assert petals["simulations"] == ours["simulations"] == 3
    assert ours["noop_reloads_high"] == 0
    assert petals["blocks_loaded_simulated"] > ours["blocks_loaded_simulated"]
    assert ours["out_of_service_s_high"] < petals["out_of_service_s_low"]
    info = json.loads((simulated / "run.json").read_text())
    assert info["load_seconds"]["s_per_block"] == pytest.approx(0.5)
    assert {figure.name for figure in draw_run(simulated)} == {"sim_vs_real.png", "sim_vs_real.pdf"}


def test_only_a_run_with_all_arms_can_be_simulated(stored):
    path = stored(slow_too(both_arms()))
    for arms in ("[petals,recheck]", "[pinned]"):
        settings, _ = load(["+exp=sim_vs_real", f"rebalance.run_dir={path}", f"arms={arms}"])
        with pytest.raises(BadInput) as refused:
            build(settings)
        assert refused.value.field == "rebalance.run_dir"
    settings, _ = load(["+exp=sim_vs_real", f"rebalance.run_dir={path.parent}"])
    with pytest.raises(BadInput):
        build(settings)
