"""``python -m swarmlab.run +exp=failover`` as a user types it, on a real swarm: what it shows, what it leaves, how it
ends. The tests named report_587 are about the public report: a client does not survive the death of a server."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import yaml

from swarmlab.record.load import load_run
from swarmlab.swarm.ready import wait_for
from tests.swarm.command import ROOT, RUN_S, Command, run_once

SWAPPED_ARM = Path(__file__).with_name("swapped_arm")
KILLED_AFTER_TOKENS = ("kill_first", "kill_middle", "kill_last", "split_replacement", "batch_of_3")
DEFAULT = {*KILLED_AFTER_TOKENS, "prefill"}
ARMS = ("petals", "issue_patch", "swarmlab")
END_S = 60

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(RUN_S + 100)]


@pytest.fixture(scope="module", autouse=True)
def one_at_a_time():
    """Two of these runs at once on one machine would take each other's time."""
    with (Path(tempfile.gettempdir()) / "swarmlab-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def default_run(tiny_model, tmp_path_factory):
    """The default set of scenarios, run once for all tests of this file."""
    yield from run_once(tmp_path_factory.mktemp("default"), tiny_model, "failover")


@pytest.fixture
def start(tiny_model, tmp_path):
    started = []

    def start(*arguments, **env):
        swapped = (SWAPPED_ARM,) if env else ()
        started.append(Command(tmp_path, tiny_model, "failover", *arguments, python_path=swapped, **env))
        return started[-1]

    yield start
    for command in started:
        command.close()


def summary_of(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


def outcomes(run_dir, arm):
    return {name: arms[arm]["outcome"] for name, arms in summary_of(run_dir)["scenarios"].items()}


def check(run_dir):
    """Judge a stored run in a process of its own: exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "swarmlab.check", run_dir],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        capture_output=True, text=True, check=False, timeout=END_S,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_run_holds_and_says_so(default_run):
    assert default_run.process.returncode == 0, default_run.out[-3000:] + default_run.err[-3000:]
    assert "Traceback" not in default_run.err
    (run_dir,) = default_run.runs
    assert summary_of(run_dir)["verdict"] == "holds"
    assert set(summary_of(run_dir)["scenarios"]) == DEFAULT
    relative = run_dir.relative_to(default_run.folder)
    for line in (
        "6 scenarios",
        "verdict: holds",
        f"run folder: {relative}",
        f"figure:     {relative}/figures/",
    ):
        assert line in default_run.out


def test_what_is_printed_into_a_file_has_no_bar_and_no_cut_lines(default_run):
    assert not {"\x1b", "\r", "…"} & set(default_run.out)
    assert len(default_run.out.splitlines()) < 250


def test_nothing_is_left_but_the_run_folder(default_run):
    assert default_run.left == []
    assert [path.name for path in default_run.folder.iterdir()] == ["runs"]
    assert {path.name for path in (default_run.folder / "runs").iterdir()} == {"failover"}


def test_report_587_the_original_cannot_go_on_after_a_server_died(default_run):
    """What the report says of the installed package: the assertion, in every scenario with a filled cache."""
    for name in KILLED_AFTER_TOKENS:
        petals = summary_of(default_run.runs[0])["scenarios"][name]["petals"]
        assert (petals["outcome"], petals["seen_broken_input_cache"]) == ("exception", True), name
        assert petals["tokens_identical_ratio"] < 1, name


def test_report_587_its_patch_is_silently_wrong(default_run):
    patched = outcomes(default_run.runs[0], "issue_patch")
    assert patched["split_replacement"] == patched["batch_of_3"] == "wrong"


def holds_report_587(run_dir, scenarios):
    """Of the swarmlab arm: every scenario ends with the failure-free run's tokens and hidden states."""
    summary = summary_of(run_dir)
    for name in scenarios:
        ours = summary["scenarios"][name]["swarmlab"]
        assert (ours["outcome"], ours["tokens_identical_ratio"]) == ("identical", 1.0), name
        assert ours["failures_injected"] >= 1
        assert ours["recovery_over_floor"] > 0
    assert summary["verdict"] == "holds"


def test_report_587_swarmlab_goes_on_as_if_nothing_had_happened(default_run):
    """Fails if swarmlab's session is replaced by the original one; see the test of swapped sessions."""
    holds_report_587(default_run.runs[0], KILLED_AFTER_TOKENS)


def test_report_587_swarmlab_is_right_where_the_patch_is_wrong(default_run):
    """Fails if swarmlab's session is replaced by the report's patch; see the test of swapped sessions."""
    holds_report_587(default_run.runs[0], ("split_replacement", "batch_of_3", "prefill"))


@pytest.mark.parametrize(("session", "outcome"), [("petals", "exception"), ("issue_patch", "wrong")])
def test_report_587_both_tests_see_a_swapped_session(start, session, outcome):
    """The same command with another session inside the swarmlab arm: exit code 1, and what the tests ask fails."""
    run = start("scenarios=[split_replacement]", "arms=[swarmlab]", SWARMLAB_TEST_SESSION=session)
    assert run.end() == 1, run.out[-3000:] + run.err[-3000:]
    assert outcomes(run.runs[0], "swarmlab") == {"split_replacement": outcome}
    assert summary_of(run.runs[0])["verdict"] == "fails"
    with pytest.raises(AssertionError):
        holds_report_587(run.runs[0], ["split_replacement"])


def test_the_run_folder_is_as_the_contract_says(default_run):
    (run_dir,) = default_run.runs
    assert (run_dir.parent / "latest").resolve() == run_dir.resolve()
    info = json.loads((run_dir / "run.json").read_text())
    assert (info["id"], info["exp"], info["status"], info["world"]) == (
        run_dir.name,
        "failover",
        "complete",
        "real",
    )
    assert info["overrides"][0] == "+exp=failover"
    assert {"argv", "seed", "git", "start_utc", "end_utc", "versions", "host", "device", "model"} <= set(info)
    assert info["versions"]["petals"] == "2.2.0.post1"
    assert len(info["model"]["hash"]) == 64
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert (config["experiment"], config["arms"]) == ("failover", list(ARMS))
    assert {path.suffix for path in (run_dir / "figures").iterdir()} == {".png", ".pdf"}
    assert all(path.stat().st_size > 5000 for path in (run_dir / "figures").iterdir())


def test_every_row_of_the_history_has_a_time_and_an_arm(default_run):
    run = load_run(default_run.runs[0])
    assert {"steps", "faults", "failovers", "floors", "outcomes", "servers", "logs"} <= set(run.kinds)
    for path in sorted((run.path / "history").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(row["t"] >= 0 and isinstance(row["arm"], str) for row in rows), path.name
        table = pd.read_parquet(run.path / "tables" / f"{path.stem}.parquet")
        assert len(table) == len(rows) > 0


def test_every_fault_was_confirmed_and_undone(default_run):
    faults = load_run(default_run.runs[0]).history("faults")
    assert all(row["ok"] for row in faults)
    stages: dict[tuple[str, str], list[str]] = {}
    for row in faults:
        stages.setdefault((row["scenario"], row["arm"]), []).append(row["stage"])
    assert len(stages) == len(DEFAULT) * len(ARMS)
    assert all(one == ["setup", "inject", "confirm", "heal", "cleanup"] for one in stages.values())


def test_the_summary_has_the_metrics_of_the_contract(default_run):
    summary = summary_of(default_run.runs[0])
    metrics = {
        "sessions", "failures_injected", "outcome", "tokens_identical_ratio", "max_abs_diff", "recovery_s_median",
        "recovery_s_p95", "recovery_over_floor", "steps_per_s",
    }  # fmt: skip
    assert set(summary["arms"]) == set(ARMS)
    for arms in summary["scenarios"].values():
        assert all(metrics <= set(one) for one in arms.values())
    assert all(metrics <= set(one) for one in summary["arms"].values())


def test_judging_again_says_the_same(default_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(default_run.runs[0], copy)
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "tables")
    code, said = check(copy)
    assert (code, "verdict: holds" in said) == (0, True)
    assert summary_of(copy) == summary_of(default_run.runs[0])


def in_mid_run(command):
    """Wait until a client generates; return the run folder."""

    def first_steps():
        assert command.process.poll() is None, command.process.communicate()
        runs = command.runs
        return runs[0] if runs and (runs[0] / "history" / "steps.jsonl").is_file() else None

    found = wait_for(first_steps, 120, "the first step of a client")
    assert len(command.machine.look()) > 20, "a whole swarm is there to be found"
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_was_recorded_and_leaves_nothing(start, number):
    command = start("scenarios=[kill_last]")
    run_dir = in_mid_run(command)
    os.killpg(command.process.pid, number)  # as a terminal does
    assert command.end(END_S) == 128 + number, command.out[-3000:] + command.err[-3000:]
    assert "Traceback" not in command.err
    assert command.machine.left() == []
    assert f"Interrupted ({number.name})" in command.out
    assert str(run_dir.relative_to(command.folder)) in command.out
    still_readable(run_dir, "interrupted")
    assert json.loads((run_dir / "run.json").read_text())["reason"] == number.name


def test_when_the_orchestrator_is_killed_all_others_leave(start):
    command = start("scenarios=[kill_last]")
    run_dir = in_mid_run(command)
    command.process.kill()
    assert command.end(END_S) == -signal.SIGKILL
    assert command.machine.left() == []
    still_readable(run_dir, "running")


def still_readable(run_dir, status):
    """The record of a run that did not complete, and what may be concluded from it: nothing."""
    run = load_run(run_dir)
    assert run.info["status"] == status
    assert len(run.history("steps")) >= 1
    assert len(run.history("servers")) >= 10
    code, said = check(run_dir)
    assert code == 3
    assert "verdict: unknown" in said
    assert f"its status is {status}" in said
    assert not (run_dir.parent / "latest").exists()
