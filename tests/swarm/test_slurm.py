"""The job's script and how its tasks find each other; and a real job, where there is a Slurm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.swarm import ray_process, slurm, slurm_member
from swarmlab.swarm.ready import wait_for
from swarmlab.swarm.slurm import JobOrder, job_script

ROOT = Path(__file__).resolve().parents[2]
EXP = ("+exp=failover", "scenarios=[kill_last]")


@pytest.fixture
def idle_slurm():
    """Skips unless there is a Slurm with a machine for us; asked only then, as it may take ten seconds to say no."""
    if shutil.which("sinfo") is None:
        pytest.skip("no Slurm here")
    found = subprocess.run(
        ["sinfo", "--noheader", "--states=idle"], capture_output=True, text=True, check=False
    )
    if not found.stdout.strip():
        pytest.skip(f"no idle Slurm node here: {found.stderr.strip()}")


def processes_of(job):
    """Those that a Slurm job has started and that are still there."""
    return [one for one in psutil.process_iter() if job_of(one) == job]


def job_of(process):
    with suppress(psutil.Error):
        return process.environ().get("SLURM_JOB_ID")


def run_script(script, folder, **env):
    """Run a job's script with stand-ins for Slurm's commands; what srun was asked to run, and its environment."""
    fake = folder / "bin"
    fake.mkdir()
    srun = fake / "srun"
    srun.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$SEEN"; env > "$SEEN.env"\n')
    srun.chmod(0o755)
    seen = folder / "seen"
    environment = {
        **os.environ,
        "PATH": f"{fake}:{os.environ['PATH']}",
        "SEEN": str(seen),
        "SLURM_JOB_ID": "77",
        **env,
    }
    subprocess.run(["bash"], input=script, text=True, check=True, env=environment)
    return seen.read_text().splitlines(), Path(f"{seen}.env").read_text().splitlines()


def test_the_script_asks_for_what_was_ordered():
    order = JobOrder(
        EXP, nodes=3, gpus_per_node=2, time="0-2:00:00", sbatch=("--partition=gpu", "--exclusive")
    )
    options = [
        line.removeprefix("#SBATCH ") for line in job_script(order).splitlines() if line.startswith("#SBATCH")
    ]
    assert {"--nodes=3", "--ntasks-per-node=1", "--gpus-per-node=2", "--time=0-2:00:00"} < set(options)
    assert options[-2:] == ["--partition=gpu", "--exclusive"]
    assert not any(
        "gpus" in line for line in job_script(JobOrder(EXP)).splitlines() if line.startswith("#SBATCH")
    )


def test_the_script_runs_and_hands_everything_on(tmp_path):
    overrides = (*EXP, "results_dir='my runs'")
    order = JobOrder(overrides, nodes=2, gpus_per_node=1, folder=tmp_path / "jobs here")
    words, env = run_script(job_script(order, python="/opt/py thon"), tmp_path)
    folder = tmp_path / "jobs here" / "77"
    assert words == [
        "--kill-on-bad-exit=0", "/opt/py thon", "-m", "swarmlab.swarm.slurm_member", str(folder), *overrides,
    ]  # fmt: skip
    assert folder.stat().st_mode & 0o077 == 0  # the token in it is for nobody else
    assert {"SWARMLAB_NODES=2", "SWARMLAB_GPUS_PER_NODE=1", f"PYTHONPATH={ROOT / 'src'}"} < set(env)


def test_the_command_prints_the_script_and_nothing_else(capsys):
    assert slurm.main(["--nodes", "2", "--sbatch=--partition=gpu", "--", *EXP]) == 0
    assert capsys.readouterr().out == job_script(JobOrder(EXP, nodes=2, sbatch=("--partition=gpu",)))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--nodes", "0", "--", *EXP], "nodes"),
        (["--gpus-per-node", "-1", "--", *EXP], "gpus_per_node"),
        (["--time", "soon", "--", *EXP], "time"),
        (["--sbatch=--x=1; rm -r .", "--", *EXP], "sbatch"),
        (["--", "seed=1"], "+exp"),
        (["--", *EXP, "cluster=ray"], "cluster"),
        # what the run would refuse, before anybody waits in a queue for it
        (["--", "+exp=nope"], "+exp: 'nope' is not usable"),
        (["--", *EXP, "swarm.device=cuda"], "cluster.gpus_per_node: 0 is not usable"),
        (["--", "+exp=rebalance"], "cluster: 'slurm' is not usable"),
    ],
)
def test_an_order_that_cannot_be_is_refused(capsys, arguments, field):
    assert slurm.main(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith(f"swarmlab: {field}")
    assert streams.err.count("\n") == 1
    with pytest.raises(BadInput):
        JobOrder(EXP, nodes=0)


def test_a_job_of_the_whole_65b_is_taken_though_this_machine_could_not_run_it(capsys):
    overrides = ("+exp=failover", "model=llama_65b", "swarm.device=cuda", "swarm.torch_dtype=float16")
    assert slurm.main(["--nodes", "3", "--gpus-per-node", "1", "--", *overrides]) == 0
    assert "#SBATCH --nodes=3" in capsys.readouterr().out


def test_who_waits_sees_all_of_what_is_published(tmp_path):
    text = "10.0.0.1:6379" * 1000
    timer = threading.Timer(0.2, slurm_member.publish, (tmp_path, "address", text))
    timer.start()
    assert slurm_member.await_file(tmp_path, ("address", "over"), 20) == text
    timer.join()
    with pytest.raises(SwarmFailed, match="does not say where it is"):
        slurm_member.await_file(tmp_path, ("token",), 0)


def test_ray_is_told_what_the_job_asked_for():
    env = {"SWARMLAB_CPUS_PER_NODE": "4", "SWARMLAB_GPUS_PER_NODE": "0"}
    assert slurm_member.resources(env) == ["--num-cpus=4", "--num-gpus=0"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_task_says_where_it_is_and_when_it_is_over(failing_ray, monkeypatch, tmp_path, fails):
    failing_ray(99 if fails else 1)
    monkeypatch.setenv("SLURM_JOB_ID", f"test-{os.getpid()}")
    monkeypatch.setenv("SWARMLAB_CPUS_PER_NODE", "1")
    monkeypatch.setenv("SWARMLAB_GPUS_PER_NODE", "0")
    monkeypatch.setattr(slurm_member, "RUN", ["sh", "-c", "exit 3"])
    if fails:
        with pytest.raises(SwarmFailed):
            slurm_member.lead(tmp_path, EXP)
        assert not (tmp_path / "address").exists()
        assert slurm_member.follow(tmp_path) == 0  # and nobody waits for it
    else:
        assert slurm_member.lead(tmp_path, EXP) == 3
        assert (tmp_path / "address").read_text().count(":") == 1
        assert len((tmp_path / "token").read_text()) == 64
    assert (tmp_path / "over").read_text() == ("1" if fails else "3")


def test_a_job_that_is_cancelled_lets_the_run_end_its_swarm(tmp_path):
    played_run = (
        "import pathlib, signal, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "def leave(*_):\n    time.sleep(1)\n    (folder / 'in-order').touch()\n    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, leave)\n(folder / 'running').touch()\ntime.sleep(600)\n"
    )
    member = (
        "import sys\nfrom swarmlab.swarm import ray_process, slurm_member\n"
        "ray_process.SUPERVISOR = ['sh', '-c', 'echo Ray runtime started; exec sleep 600']\n"
        f"slurm_member.RUN = [sys.executable, '-c', {played_run!r}]\nsys.exit(slurm_member.main())\n"
    )
    job = {"SLURM_JOB_ID": f"test-{os.getpid()}", "SLURM_PROCID": "0"}
    ordered = {"SWARMLAB_CPUS_PER_NODE": "1", "SWARMLAB_GPUS_PER_NODE": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", member, str(tmp_path)],
        env={**os.environ, **job, **ordered},
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "running").exists, 60, "the run has begun")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "in-order").exists()
    assert (tmp_path / "over").read_text() == "1"


def test_the_others_join_and_stay_until_it_is_over(failing_ray, monkeypatch, tmp_path):
    failing_ray(1)
    for name, value in {"JOB_ID": f"test-{os.getpid()}", "PROCID": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SWARMLAB_CPUS_PER_NODE", "1")
    monkeypatch.setenv("SWARMLAB_GPUS_PER_NODE", "0")
    slurm_member.publish(tmp_path, "address", "10.0.0.1:6379")
    timer = threading.Timer(0.5, slurm_member.publish, (tmp_path, "over", "0"))
    timer.start()
    assert slurm_member.follow(tmp_path) == 0
    timer.join()
    assert (tmp_path / "ray-1.log").exists()


def test_one_that_joins_too_late_does_not_wait_for_what_is_over(monkeypatch, tmp_path):
    # its head is gone: it never starts
    monkeypatch.setattr(ray_process, "SUPERVISOR", ["sh", "-c", "exec sleep 600"])
    for name, value in {"SLURM_JOB_ID": f"test-{os.getpid()}", "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SWARMLAB_CPUS_PER_NODE", "1")
    monkeypatch.setenv("SWARMLAB_GPUS_PER_NODE", "0")
    slurm_member.publish(tmp_path, "address", "10.0.0.1:6379")
    slurm_member.publish(tmp_path, "over", "1")
    assert slurm_member.follow(tmp_path) == 0


@pytest.mark.swarm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("idle_slurm")
def test_a_job_runs_the_experiment_and_leaves_nothing(tmp_path, tiny_model):
    overrides = (
        *EXP,
        "arms=[swarmlab]",
        "cluster.bind=loopback",  # one machine only; libp2p finds no way to some of the addresses of build machines
        f"models_dir={tiny_model.path.parent}",
        f"results_dir={tmp_path}/runs",
    )
    script = job_script(
        JobOrder(overrides, cpus_per_node=1, folder=tmp_path, sbatch=(f"--chdir={tmp_path}",))
    )
    done = subprocess.run(["sbatch", "--wait"], input=script, text=True, capture_output=True, check=False)
    (log,) = tmp_path.glob("swarmlab-*.log")
    assert done.returncode == 0, log.read_text()
    number = log.stem.removeprefix("swarmlab-")
    assert (tmp_path / number / "over").read_text() == "0"
    summary = json.loads((tmp_path / "runs/failover/latest/summary.json").read_text())
    assert summary["arms"]["swarmlab"]["outcome"] == "identical"
    assert not Path(f"/tmp/swarmlab-job-{number}").exists()
    assert processes_of(number) == []
