"""A model too large to generate with by plain transformers: its reference follows, and sees the GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.health.gpus import CUDA_VISIBLE
from swarmlab.scenarios.failover import LARGE_HIDDEN, Failover
from swarmlab.swarm.running import Swarm


@pytest.mark.parametrize(("hidden_size", "followed"), [(LARGE_HIDDEN - 1, False), (8192, True)])
def test_a_large_model_follows_the_text_of_the_failure_free_run(hidden_size, followed):
    experiment: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(hidden_size=hidden_size), swarm=SimpleNamespace(device="cuda")
    )
    run_dir: Any = SimpleNamespace(states_path=lambda scenario, arm: Path(f"/run/{scenario}.{arm}.npz"))
    scenario: Any = SimpleNamespace(name="kill_last")
    told = Failover._followed(experiment, scenario, run_dir)
    assert told == ({"given_path": "/run/kill_last.reference.npz", "device": "cuda"} if followed else {})


@pytest.mark.parametrize(
    ("gpus", "on_gpu", "env"),
    [
        (("3", "5"), True, {CUDA_VISIBLE: "3"}),
        ((), True, {CUDA_VISIBLE: None}),  # whatever the machine has
        (("3",), False, {}),
    ],
)
def test_a_client_with_a_gpu_starts_python_anew_and_sees_one(monkeypatch, gpus, on_gpu, env):
    monkeypatch.delenv(CUDA_VISIBLE, raising=False)
    seen: dict[str, Any] = {}
    swarm = Swarm.__new__(Swarm)
    swarm._log_dir = Path("/run/logs")
    swarm._nursery = SimpleNamespace(gpus=gpus, spawn=lambda *_, **options: seen.update(options))  # type: ignore[assignment]
    swarm.spawn("clients.failover:plain", "client", {}, on_gpu=on_gpu)
    assert (seen["env"], seen["fresh"], seen["channel"]) == (env, on_gpu, True)
