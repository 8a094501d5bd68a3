from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
import yaml

from swarmlab.errors import BadInput
from swarmlab.record import rundir
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir, git_state, write_json


def create(root, exp="failover", **changes):
    settings = {
        "config": {"seed": 3, "arms": ["petals"]}, "argv": ["run", "+exp=failover"], "overrides": ["seed=3"], "seed": 3,
        "world": "real", "arms": ["petals"], "model": {"id": "tiny_llama", "hash": "ab12"},
    }  # fmt: skip
    return RunDir.create(root, exp, **{**settings, **changes})


def info(run_dir):
    return json.loads((run_dir.path / "run.json").read_text())


def test_run_json_says_what_was_run_and_on_what(tmp_path):
    run_dir = create(tmp_path)
    stored = info(run_dir)
    assert stored["status"] == "running"
    assert stored["id"] == run_dir.path.name
    assert run_dir.path.parent == tmp_path / "failover"
    assert (stored["exp"], stored["seed"], stored["world"], stored["arms"]) == (
        "failover",
        3,
        "real",
        ["petals"],
    )
    assert (stored["argv"], stored["overrides"]) == (["run", "+exp=failover"], ["seed=3"])
    assert stored["model"] == {"id": "tiny_llama", "hash": "ab12"}
    assert set(stored["git"]) == {"commit", "dirty"}
    assert stored["versions"]["numpy"]
    assert set(stored["host"]) == {"cpu", "cores", "memory_bytes", "os", "python"}
    assert stored["device"] == "cpu"
    assert datetime.fromisoformat(stored["start_utc"]).utcoffset() == timedelta(0)
    assert yaml.safe_load((run_dir.path / "config.yaml").read_text()) == {"seed": 3, "arms": ["petals"]}
    assert {path.name for path in run_dir.path.iterdir() if path.is_dir()} == {
        "history", "tables", "figures", "states",
    }  # fmt: skip


def test_leaving_the_run_normally_completes_it_and_moves_latest(tmp_path):
    with create(tmp_path) as first:
        assert not (tmp_path / "failover" / "latest").exists()
    with create(tmp_path) as second:
        assert (tmp_path / "failover" / "latest").resolve() == first.path.resolve()
    assert (tmp_path / "failover" / "latest").resolve() == second.path.resolve()
    assert (tmp_path / "failover" / "latest").readlink().is_absolute() is False
    assert info(second)["status"] == "complete"
    assert info(second)["end_utc"] >= info(second)["start_utc"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(1), "interrupted"),
        (RuntimeError("swarm lost"), "failed"),
    ],
)
def test_a_run_that_is_cut_off_says_so_keeps_its_rows_and_is_not_latest(tmp_path, error, status):
    run_dir = create(tmp_path)
    with pytest.raises(type(error)), run_dir:  # noqa: PT012  the rows before the end are the point
        run_dir.history.write("steps", "petals", scenario="kill_last", token=0)
        raise error
    assert info(run_dir)["status"] == status
    assert type(error).__name__ in info(run_dir)["reason"]
    assert [row["token"] for row in load_run(run_dir.path).history("steps")] == [0]
    assert not (tmp_path / "failover" / "latest").exists()


def test_the_first_end_of_a_run_counts(tmp_path):
    with create(tmp_path) as run_dir:
        run_dir.finish("failed", reason="the swarm did not come up")
    assert (info(run_dir)["status"], info(run_dir)["reason"]) == ("failed", "the swarm did not come up")


def test_an_end_that_is_foreseen_is_written_and_the_run_goes_on(tmp_path):
    run_dir = create(tmp_path)
    run_dir.foresee("interrupted", reason="SIGTERM")
    assert (info(run_dir)["status"], info(run_dir)["reason"]) == ("interrupted", "SIGTERM")
    assert info(run_dir)["end_utc"]
    run_dir.history.write("logs", "", source="teardown", level="info", line="still here")
    assert run_dir.status == "running"
    run_dir.finish("complete")
    run_dir.foresee("interrupted", reason="too late")
    assert info(run_dir)["status"] == "complete"


def test_runs_started_at_once_never_share_a_folder(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: create(tmp_path), range(16)))
    assert len({run_dir.path for run_dir in runs}) == 16


def test_a_folder_that_exists_already_is_never_taken_over(tmp_path, monkeypatch):
    ids = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr(rundir, "_iso", lambda _moment: "2026-11-30T00:00:00Z")
    start = datetime.fromisoformat("2026-11-30T00:00:00+00:00")
    monkeypatch.setattr(rundir.secrets, "token_hex", lambda _n: next(ids))
    first, second = (rundir._new_folder(tmp_path, "failover", start) for _ in range(2))
    assert (first.name, second.name) == ("20261130T000000Z-aaaaaa", "20261130T000000Z-bbbbbb")


def test_a_root_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match="results_dir"):
        create(tmp_path / "file")


@pytest.mark.parametrize("exp", ["", ".", "..", "a/b"])
def test_an_experiment_name_never_leaves_the_root(tmp_path, exp):
    with pytest.raises(BadInput, match="exp"):
        create(tmp_path, exp=exp)
    assert list(tmp_path.iterdir()) == []


def test_git_state_is_none_outside_git(tmp_path, monkeypatch):
    monkeypatch.setattr(rundir, "__file__", str(tmp_path / "rundir.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() == {"commit": None, "dirty": None}


def test_git_state_tells_clean_from_dirty(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "rundir.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "one", "--no-verify")
    monkeypatch.setattr(rundir, "__file__", str(tmp_path / "rundir.py"))
    clean = git_state()
    (tmp_path / "rundir.py").write_text("2")
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    assert git_state() == {"commit": clean["commit"], "dirty": True}


def test_a_killed_run_leaves_every_row_it_wrote(tmp_path):
    script = (
        "import os, signal, sys; from swarmlab.record.rundir import RunDir\n"
        f"run = RunDir.create({str(tmp_path)!r}, 'failover', config={{}}, argv=[], overrides=[], seed=0, world='real',"
        " arms=[], model={})\n"
        "[run.history.write('steps', 'petals', token=token) for token in range(100)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=False, env={"PYTHONPATH": "src:.", "PATH": "/usr/bin:/bin"}
    )
    (path,) = (tmp_path / "failover").iterdir()
    run = load_run(path)
    assert run.info["status"] == "running"
    assert [row["token"] for row in run.history("steps")] == list(range(100))


def test_json_is_replaced_whole_and_without_leftovers(tmp_path):
    write_json(tmp_path / "run.json", {"a": float("nan")})
    write_json(tmp_path / "run.json", {"a": 1})
    assert json.loads((tmp_path / "run.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
