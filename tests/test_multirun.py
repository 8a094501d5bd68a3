"""``python -m swarmlab.run -m`` with a launcher that runs jobs in processes of their own, on a tiny simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from swarmlab import settings as run_settings
from swarmlab.record.jobs import JobBook
from swarmlab.record.load import load_run

ROOT = Path(__file__).resolve().parents[1]
LAUNCHERS = ROOT / "configs/hydra/launcher"
EXP = ("+exp=report_389", "arms=[swarmlab]")


def multirun(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "swarmlab.run", "-m", *EXP, *arguments, "results_dir='my runs'"],
        check=False, cwd=folder, capture_output=True, text=True, timeout=110,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


def test_jobs_side_by_side_leave_their_runs_and_one_table(tmp_path):
    done = multirun(tmp_path, "hydra/launcher=here", "hydra.launcher.n_jobs=2", "seed=0,1")
    (folder,) = (tmp_path / "my runs" / "multirun").iterdir()
    jobs = JobBook(folder).jobs()
    assert [job.overrides[-2] for job in jobs] == ["seed=0", "seed=1"], done.stderr
    folders = [Path(job.run_dir or "") for job in jobs]
    runs = [load_run(folder) for folder in folders]
    assert [run.info["seed"] for run in runs] == [0, 1]
    assert [run.info["status"] for run in runs] == ["complete", "complete"]
    assert all("-m" in run.info["argv"] for run in runs)
    # one arm of several is no verdict on the others; what counts here is that the worst job decides
    assert done.returncode == max(job.exit_code for job in jobs)
    assert all(f"seed={seed}" in done.stdout and folders[seed].name in done.stdout for seed in (0, 1))
    assert (folder / "summary.csv").read_text().count("swarmlab") > 2
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize("name", sorted(path.stem for path in LAUNCHERS.glob("*.yaml")))
def test_every_launcher_has_a_config_that_hydra_takes(name):
    run_settings.register()
    with initialize_config_dir(str(run_settings.CONFIGS), version_base="1.3"):
        config = compose(
            "config", overrides=[f"hydra/launcher={name}", "+exp=churn"], return_hydra_config=True
        )
    given = yaml.safe_load((LAUNCHERS / f"{name}.yaml").read_text())
    assert "_target_" in config.hydra.launcher
    for key, value in given.items():
        if key != "defaults":
            assert config.hydra.launcher[key] == value
