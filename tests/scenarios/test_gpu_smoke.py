"""The script that looks at a GPU: budgets, labels, what it writes; all of it on a CPU in a slow test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from swarmlab.analysis.gpu_smoke import table
from swarmlab.health.capacity import GIB
from swarmlab.health.gpus import CUDA_VISIBLE
from swarmlab.health.swarm_plan import Place, check_plan
from swarmlab.scenarios import bounded_step, gpu_smoke
from swarmlab.scenarios.gpu_smoke import CPU, GPU, STEPS, Smoke, Step, device_label
from swarmlab.scenarios.planning import check_in_time, plans_of
from swarmlab.settings import load

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)\n"


def test_a_gpu_is_done_within_ten_minutes():
    assert sum(GPU.budget_s.values()) <= 600 - bounded_step.LEAVE_S / 2
    assert set(GPU.budget_s) == set(CPU.budget_s) == set(STEPS)
    assert GPU.model == "llama_65b_synthetic"
    assert GPU.quant == "nf4"


@pytest.mark.parametrize(
    ("program", "outcome"),
    [("pass", "done"), ("raise SystemExit(3)", "done"), ("raise SystemExit(1)", "failed with exit code 1")],
)
def test_how_a_step_ended_is_told(program, outcome):
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    assert bounded_step._wait(process, 60) == outcome


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_a_step_that_is_out_of_time_is_ended_and_said_so(monkeypatch, ends_in_order):
    monkeypatch.setattr(bounded_step, "LEAVE_S", 10.0 if ends_in_order else 0.2)
    handler = STUBBORN if ends_in_order else STUBBORN.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")
    process = subprocess.Popen(
        [sys.executable, "-c", f"{handler}time.sleep(600)"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert bounded_step._wait(process, 0.1) == "out of time (0.1 s)"
    assert process.returncode == (0 if ends_in_order else -9)
    process.stdout.close()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_step_ends_with_whoever_waits_for_it(stop, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    wait = process.wait

    def interrupted(_timeout=None):
        monkeypatch.setattr(process, "wait", wait)
        raise stop

    monkeypatch.setattr(process, "wait", interrupted)
    with pytest.raises(stop):
        bounded_step._wait(process, 60)
    assert process.returncode == -15


def test_a_cpu_is_never_called_a_gpu():
    assert "no GPU" in device_label(None)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu_smoke, "device_label", lambda _: "GPU 0 is not usable: there are 0")
    assert gpu_smoke.main(["--work", str(tmp_path / "w"), "--out", str(tmp_path / "o")]) == 2
    assert "doctor" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_table_shows_what_matters_and_on_what():
    numbers = {
        "from_store": {"read_s": 0.25, "unknown": 3},
        "verdict": "holds",
        "arms": {"swarmlab": {"moves": 2}},
    }
    result = {
        "device": "NVIDIA X 80 GiB", "at_utc": "2026-01-01 00:00", "git": {"commit": "abc"},
        "steps": [vars(Step("blocks", "done", 3.0, 2**31, numbers)), vars(Step("failover", "failed", 1.0, None))],
    }  # fmt: skip
    text = table(result)
    assert text.startswith("# gpu_smoke on NVIDIA X 80 GiB\n")
    assert "| blocks | done | 3 | 2.0 | from_store read_s 0.25; verdict holds; swarmlab moves 2 |" in text
    assert "| failover | failed | 1 | - |  |" in text


def test_servers_of_a_swarm_are_given_the_gpu_one_by_one(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        Smoke,
        "_run",
        lambda _self, name, *arguments: (seen.append(arguments), (Step(name, "done", 0.0, None), []))[1],
    )
    Smoke(GPU, 3, tmp_path).failover()
    assert {"cluster.gpus=[3]", "swarm.device=cuda", "model.quant=nf4", "swarm.torch_dtype=float16"} < set(
        seen[0]
    )
    Smoke(CPU, None, tmp_path).rebalance()
    assert not any("cluster.gpus" in argument for argument in seen[1])


@pytest.mark.parametrize("step", ["failover", "rebalance"])
@pytest.mark.parametrize(("size", "gpu"), [(GPU, 0), (CPU, None)])
def test_a_run_takes_the_settings_of_each_step_and_an_80_gb_gpu_has_room(
    monkeypatch, tmp_path, step, size, gpu
):
    seen = []
    monkeypatch.setattr(
        Smoke,
        "_run",
        lambda _self, name, *arguments: (seen.extend(arguments), (Step(name, "done", 0.0, None), []))[1],
    )
    getattr(Smoke(size, gpu, tmp_path), step)()
    module, *overrides = seen
    assert module == "swarmlab.run"
    settings, _ = load(overrides, elsewhere=True)
    places = [Place("memory" if gpu is None else "gpu0", 80 * GIB)]
    plans = plans_of(settings, places)
    for plan in plans:
        check_plan(plan)
    check_in_time(settings, plans)


def test_the_gpu_is_one_of_those_that_we_were_given(monkeypatch, tmp_path):
    monkeypatch.setenv(CUDA_VISIBLE, "4,GPU-b")
    watched = []
    monkeypatch.setattr(bounded_step, "_watched", lambda gpu: (watched.append(gpu), nullcontext([]))[1])
    step, lines = Smoke(GPU, 1, tmp_path)._run("blocks", "tests.scenarios.says_which_gpu")
    assert step.outcome == "done", lines
    assert lines == ["GPU-b", "PCI_BUS_ID"]
    assert watched == ["GPU-b"]


@pytest.mark.swarm
@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_it_runs_on_a_cpu_from_end_to_end(tmp_path):
    done = subprocess.run(
        [
            sys.executable, "-m", "swarmlab.scenarios.gpu_smoke", "--cpu", "--out", "out", "--work", "work",
        ],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "out").glob("*-cpu/result.json")
    result = json.loads(path.read_text())
    assert not result["on_gpu"]
    blocks, failover, rebalance = result["steps"]
    assert blocks["numbers"]["from_store"]["bytes_read"] > 0
    assert blocks["numbers"]["first_load"]["bytes_read"] == 0  # drawn
    assert failover["numbers"]["arms"]["swarmlab"]["outcome"] == "identical"
    assert rebalance["numbers"]["verdict"] == "holds"
    assert rebalance["numbers"]["arms"]["swarmlab"]["redundant_loads"] == 0
