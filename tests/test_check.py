from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from swarmlab.check import judge, main
from swarmlab.errors import BadInput
from swarmlab.figures import main as figures
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir, Status
from tests.analysis.histories import DEFAULT_SCENARIOS, default_run


def stored(root, history=None, status: Status = "complete", config=None):
    run_dir = RunDir.create(
        root, "failover", config=config or {"tolerance": 3e-4}, argv=[], overrides=[], seed=0, world="real",
        arms=["petals", "issue_patch", "swarmlab"], model={"id": "tiny_llama", "hash": "ab"},
    )  # fmt: skip
    run_dir.update(scenarios=DEFAULT_SCENARIOS)
    (history or default_run()).save(run_dir.path)
    run_dir.finish(status)
    return run_dir.path


def summary_of(path):
    return json.loads((path / "summary.json").read_text())


def test_a_stored_run_that_holds_gives_0_a_summary_and_tables(tmp_path, capsys):
    path = stored(tmp_path)
    assert main([str(path)]) == 0
    summary = summary_of(path)
    assert set(summary) == {"arms", "scenarios", "verdict", "reasons"}
    assert summary["verdict"] == "holds"
    assert summary["scenarios"]["kill_last"]["petals"]["outcome"] == "exception"
    assert summary["scenarios"]["kill_last"]["petals"]["recovery_s_median"] is None
    assert summary["arms"]["swarmlab"]["outcome"] == "identical"
    assert {file.name for file in (path / "tables").iterdir()} == {
        "steps.parquet", "faults.parquet", "failovers.parquet", "floors.parquet", "outcomes.parquet",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert "verdict: holds" in printed
    assert "split_replacement" in printed


def test_the_recorded_outcome_is_not_believed(tmp_path, capsys):
    history = default_run()
    history.arrays["kill_last", "swarmlab"]["hidden"][0, 9] += 1.0
    path = stored(tmp_path, history)
    assert main([str(path)]) == 1
    assert summary_of(path)["verdict"] == "fails"
    assert "kill_last / swarmlab / outcome: wrong, expected identical" in capsys.readouterr().out


def test_an_interrupted_run_is_unknown_but_gets_its_summary_and_tables(tmp_path, capsys):
    path = stored(tmp_path, status="interrupted")
    with (path / "history" / "steps.jsonl").open("ab") as file:
        file.write(b'{"t": 500.1, "arm": "sw')
    assert main([str(path)]) == 3
    assert summary_of(path)["verdict"] == "unknown"
    assert summary_of(path)["reasons"] == ["unknown: run: its status is interrupted"]
    assert (path / "tables" / "steps.parquet").exists()
    assert "its status is interrupted" in capsys.readouterr().out


def test_judging_again_gives_the_same_summary(tmp_path):
    path = stored(tmp_path)
    first = judge(path)
    text = (path / "summary.json").read_text()
    assert judge(path) == first
    assert (path / "summary.json").read_text() == text
    assert first.exit_code == 0


def test_a_damaged_history_is_unknown_and_named(tmp_path):
    path = stored(tmp_path)
    steps = path / "history" / "steps.jsonl"
    steps.write_bytes(steps.read_bytes().replace(b'"token": 3,', b'"token": 3;', 1))
    summary = judge(path)
    assert summary.exit_code == 3
    assert summary.scenarios == {}
    assert any("history/steps.jsonl line" in reason for reason in summary.reasons)
    assert summary_of(path)["verdict"] == "unknown"


def test_a_raw_run_that_lost_a_file_of_its_history_is_unknown(tmp_path):
    """The tables that an earlier check made must not take its place."""
    path = stored(tmp_path)
    assert judge(path).exit_code == 0
    (path / "history" / "steps.jsonl").unlink()
    assert main([str(path)]) == 3
    assert summary_of(path)["verdict"] == "unknown"
    assert any("history/steps.jsonl was removed" in reason for reason in summary_of(path)["reasons"])


@pytest.mark.parametrize("kind", ["steps", "failovers", "faults", "floors", "outcomes"])
def test_a_complete_run_that_lost_half_of_its_rows_is_unknown(tmp_path, kind):
    path = stored(tmp_path)
    file = path / "history" / f"{kind}.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert main([str(path)]) == 3
    lost = f"unknown: history/{kind}.jsonl: {len(lines)} rows written, {len(lines) // 2} rows found"
    assert lost in summary_of(path)["reasons"]


def test_a_last_line_that_is_torn_in_a_complete_run_is_unknown(tmp_path):
    path = stored(tmp_path)
    steps = path / "history" / "steps.jsonl"
    steps.write_bytes(steps.read_bytes()[:-10])
    assert judge(path).exit_code == 3


def test_expectations_about_nothing_in_the_run_are_no_reason_that_holds(tmp_path):
    expected = tmp_path / "expected.yaml"
    expected.write_text(yaml.safe_dump({"scenarios": {"other": {"arms": {"petals": {"outcome": "wrong"}}}}}))
    summary = judge(stored(tmp_path), expected=expected)
    assert summary.exit_code == 3
    (reason,) = summary.reasons
    assert reason.startswith("unknown: nothing to compare: ")


def test_a_config_that_cannot_be_read_costs_one_line(tmp_path, capsys):
    path = stored(tmp_path)
    (path / "config.yaml").write_text("a: [1, 2\nb: {c: d\n")
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("swarmlab: run_dir: ")
    assert "config.yaml is no readable YAML (line " in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--nonsense"], ["--expected"]])
def test_a_command_line_that_is_none_costs_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("swarmlab: ")
    assert error.count("\n") == 1


def test_damaged_arrays_leave_their_arm_unjudged(tmp_path):
    path = stored(tmp_path)
    arrays = path / "states" / "kill_last.swarmlab.npz"
    arrays.write_bytes(arrays.read_bytes()[:100])
    summary = judge(path)
    assert summary.exit_code == 3
    assert summary.scenarios["kill_last"]["swarmlab"]["outcome"] is None
    assert summary.scenarios["kill_first"]["swarmlab"]["outcome"] == "identical"
    assert any("kill_last.swarmlab.npz cannot be read" in reason for reason in summary.reasons)


@pytest.mark.parametrize(("config", "code"), [({"tolerance": 0.1}, 0), ({"tolerance": 1e-6}, 3), ({}, 0)])
def test_the_tolerance_comes_from_the_config_of_the_run(tmp_path, config, code):
    history = default_run()
    for scenario, arm in history.arrays:
        if arm == "plain":  # the failure-free control differs by 2e-4
            history.arrays[scenario, arm]["hidden"][0, 0, 0] += 2e-4
    assert judge(stored(tmp_path, history, config={"seed": 1, **config})).exit_code == code


def test_a_tolerance_that_makes_no_sense_is_unknown(tmp_path):
    summary = judge(stored(tmp_path, config={"tolerance": "large"}))
    assert summary.exit_code == 3
    assert any("tolerance" in reason for reason in summary.reasons)


def test_a_run_without_rows_is_unknown(tmp_path):
    path = RunDir.create(
        tmp_path, "failover", config={}, argv=[], overrides=[], seed=0, world="real", arms=[], model={}
    ).path  # fmt: skip
    assert main([str(path)]) == 3


def test_other_expectations_can_be_held_against_a_run(tmp_path):
    expected = tmp_path / "expected.yaml"
    expected.write_text(
        yaml.safe_dump({"scenarios": {"kill_last": {"arms": {"petals": {"outcome": "identical"}}}}})
    )
    assert main([str(stored(tmp_path)), "--expected", str(expected)]) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "scenarios: 3", "scenarios: {kill_last: {outcome: x}}", "a: [", "\x00"]
)
def test_expectations_that_cannot_be_read_are_bad_input(tmp_path, text, capsys):
    (tmp_path / "expected.yaml").write_text(text)
    assert main([str(stored(tmp_path)), "--expected", str(tmp_path / "expected.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_no_run_is_bad_input_in_one_line(tmp_path, capsys):
    path = stored(tmp_path)
    (path / "run.json").write_text("{")
    for folder in (tmp_path / "nowhere", tmp_path, path):
        assert main([str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 3


def test_an_experiment_that_nobody_can_judge_is_bad_input(tmp_path):
    path = stored(tmp_path)
    run = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**run, "exp": "juggling"}))
    with pytest.raises(BadInput, match="juggling"):
        judge(path)


def test_everything_that_was_checked_can_be_listed(tmp_path, capsys):
    main([str(stored(tmp_path)), "--all"])
    assert "failures confirmed" in capsys.readouterr().out


def test_it_runs_as_a_command_without_a_swarm_library(tmp_path):
    path = stored(tmp_path)
    script = (
        "import sys; sys.argv = ['check', sys.argv[1]]\n"
        "from swarmlab.check import main\ncode = main()\n"
        "loaded = {'petals', 'hivemind', 'transformers', 'torch', 'hydra'} & set(sys.modules)\n"
        "sys.exit(f'imported {loaded}' if loaded else code)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_latest_run_can_be_judged_through_its_link(tmp_path):
    path = stored(tmp_path)
    assert judge(tmp_path / "failover" / "latest").exit_code == 0
    assert (load_run(path).summary() or {})["verdict"] == "holds"


def test_what_is_published_is_judged_by_its_tables_and_stays_as_it_is(tmp_path, capsys):
    """It lacks the raw record: a verdict of "unknown" would overwrite what the raw record gave."""
    assert figures(["--publish", str(judged(tmp_path)), "--results", str(tmp_path / "results")]) == 0
    folder = tmp_path / "results" / "tables" / "failover"
    before = (folder / "summary.json").read_bytes()
    assert main([str(folder)]) == 0
    assert "claims" in capsys.readouterr().out
    assert (folder / "summary.json").read_bytes() == before
    with pytest.raises(BadInput, match="history"):
        judge(folder)


def test_a_tree_of_published_results_is_judged_in_one_command(tmp_path, capsys):
    assert figures(["--publish", str(judged(tmp_path)), "--results", str(tmp_path / "results")]) == 0
    assert main([str(tmp_path / "results"), "--all"]) == 0
    printed = capsys.readouterr().out
    assert "verdict: holds" in printed
    assert "documents" in printed


def test_a_tree_without_published_runs_is_bad_input(tmp_path, capsys):
    (tmp_path / "tables").mkdir()
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("swarmlab: results: ")


def test_a_tree_whose_run_failed_fails(tmp_path, capsys):
    history = default_run()
    history.arrays["kill_last", "swarmlab"]["hidden"][0, 9] += 1.0
    path = stored(tmp_path, history)
    judge(path)
    assert figures(["--publish", str(path), "--results", str(tmp_path / "results")]) == 0
    assert main([str(tmp_path / "results")]) == 1
    assert "kill_last / swarmlab / outcome: wrong, expected identical" in capsys.readouterr().out


def judged(root):
    path = stored(root)
    judge(path)
    return path
