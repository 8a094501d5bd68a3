"""A first look at a GPU within ten minutes: ``python -m swarmlab.scenarios.gpu_smoke`` (experiments/gpu_smoke).

Loads 65B-shaped blocks onto the device, then runs the failover and the rebalancing experiment, both shortened, with
several servers on the one GPU. Each step has its share of the time and is ended when that is over; the result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from swarmlab.analysis.gpu_smoke import table
from swarmlab.bridge.models import ensure_model
from swarmlab.health.gpus import CUDA_ORDER, CUDA_VISIBLE, visible_gpus
from swarmlab.health.probe import run_probe
from swarmlab.record.rundir import git_state, versions, write_json
from swarmlab.scenarios.bounded_step import run_within


@dataclass(frozen=True)
class Size:
    """What is run on a kind of device.

    :param budget_s: seconds of each step
    """

    model: str
    quant: str
    dtype: str
    device: str
    blocks_timed: int
    budget_s: Mapping[str, float]
    tolerance: float


# Numbers of the tolerance: float16 rounds to 1e-3 of values of about ten, and a replay computes in other shapes.
GPU = Size(
    "llama_65b_synthetic",
    "nf4",
    "float16",
    "cuda",
    4,
    {"blocks": 70, "failover": 270, "rebalance": 230},
    0.1,
)
CPU = Size(
    "llama_65b_tenth", "none", "float32", "cpu", 4, {"blocks": 120, "failover": 300, "rebalance": 400}, 3e-4
)
STEPS = ("blocks", "failover", "rebalance")


@dataclass
class Step:
    """One step as it went.

    :param outcome: as of ``bounded_step.Ended``
    """

    name: str
    outcome: str
    seconds: float
    peak_device_bytes: int | None
    numbers: dict[str, Any] = field(default_factory=dict)


class Smoke:
    """
    :param gpu: number of the GPU; None for the CPU
    :param folder: for everything that is made on the way
    """

    def __init__(self, size: Size, gpu: int | None, folder: Path) -> None:
        self.size, self.gpu, self.folder = size, gpu, folder
        self.store, self.models = folder / "block_store", folder / "models"

    def blocks(self) -> Step:
        """Load blocks from the seed, then from the store."""
        size, model = self.size, ensure_model(self.size.model, self.models, None, 0)
        done, lines = self._run(
            "blocks",
            "swarmlab.bridge.blocks.timing", str(model.path), "--store", str(self.store), "--device", size.device,
            "--blocks", str(size.blocks_timed), "--quant", size.quant, "--dtype", size.dtype,
        )  # fmt: skip
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        done.numbers = {
            "first_load": _means([row for row in rows if row.get("attempt") == "first"]),
            "from_store": _means([row for row in rows if row.get("attempt") == "again"]),
            **next((row["speed"] for row in rows if "speed" in row), {}),
        }
        return done

    def failover(self) -> Step:
        return self._experiment(
            "failover",
            "scenarios=[kill_last]",
            "arms=[swarmlab]",
            "model.n_blocks=16",
            "deadline_s=200",
            "floor_repeats=1",
        )

    def rebalance(self) -> Step:
        # without clients: they compare with plain transformers, which takes minutes to load 24 such blocks on a CPU
        return self._experiment(
            "rebalance", "scenarios=[gap]", "arms=[swarmlab]", "model.n_blocks=24", "rebalance.clients=0"
        )

    def _experiment(self, name: str, *overrides: str) -> Step:
        size, results = self.size, self.folder / "runs"
        done, _ = self._run(
            name,
            "swarmlab.run", f"+exp={name}", f"model={size.model}", f"model.quant={size.quant}",
            f"swarm.torch_dtype={size.dtype}", f"swarm.device={size.device}", f"tolerance={size.tolerance}",
            "swarm.start_deadline_s=200", "swarm.attn_cache_tokens=2048", f"models_dir={self.models}",
            f"results_dir={results}", f"swarm.store_dir={self.store}", *overrides,
            *([] if self.gpu is None else [f"cluster.gpus=[{self.gpu}]"]),
        )  # fmt: skip
        summary = results / name / "latest/summary.json"
        if summary.exists():
            found = json.loads(summary.read_text(encoding="utf-8"))
            run_id = (results / name / "latest").resolve().name
            done.numbers = {"run": run_id, "verdict": found["verdict"], "arms": found["arms"]}
        return done

    def _run(self, name: str, module: str, *arguments: str) -> tuple[Step, list[str]]:
        """A process of its own, within the step's time; what it printed goes to a log, too."""
        env = {**CUDA_ORDER, **os.environ, "PYTHONWARNINGS": "ignore"}
        shown = (
            None if self.gpu is None else visible_gpus([self.gpu], os.environ.get(CUDA_VISIBLE), "--gpu")[0]
        )
        if shown is not None and module != "swarmlab.run":  # a swarm's servers are told one by one
            env[CUDA_VISIBLE] = shown
        command = [sys.executable, "-m", module, *arguments]
        ended = run_within(self.size.budget_s[name], command, env, self.folder / f"{name}.log", shown)
        return Step(name, ended.outcome, ended.seconds, ended.peak_device_bytes), ended.lines


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = ("read_s", "quantize_s", "to_device_s", "bytes_read", "device_bytes")
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in names} if rows else {}


def device_label(gpu: int | None) -> str:
    """What computes, in words; a CPU is said to be one."""
    if gpu is None:
        return f"CPU only, no GPU ({os.cpu_count()} cores, {platform.machine()})"
    found = run_probe("swarmlab.health.gpu_probe")
    names = found.values.get("devices", [])
    return (
        names[gpu]
        if gpu < len(names)
        else f"GPU {gpu} is not usable: {found.error or f'there are {len(names)}'}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m swarmlab.scenarios.gpu_smoke",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU, as for cluster.gpus")
    parser.add_argument(
        "--cpu", action="store_true", help="on the CPU with the tenth-size model, to try the script"
    )
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--out", type=Path, default=Path("results/gpu_smoke"), help="for the result")
    parser.add_argument(
        "--work", type=Path, default=Path("results/runs/gpu_smoke"), help="for models and runs"
    )
    given = parser.parse_args(argv)
    gpu = None if given.cpu else given.gpu
    label, at = device_label(gpu), datetime.now(UTC)
    if "not usable" in label:
        print(
            f"{label}\npython -m swarmlab.doctor says more; --cpu tries the script without a GPU",
            file=sys.stderr,
        )
        return 2
    folder = given.work.absolute() / f"{at:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True)
    smoke, steps = Smoke(CPU if gpu is None else GPU, gpu, folder), []
    for name in given.steps:
        print(f"{label}: {name}, at most {smoke.size.budget_s[name]:g} s", flush=True)
        steps.append(getattr(smoke, name)())
        print(f"  {steps[-1].outcome} after {steps[-1].seconds:g} s", flush=True)
    result = {
        "device": label, "on_gpu": gpu is not None, "at_utc": f"{at:%Y-%m-%d %H:%M}", "git": git_state(),
        "model": smoke.size.model, "quant": smoke.size.quant, "dtype": smoke.size.dtype, "versions": versions(),
        "memory_bytes": psutil.virtual_memory().total, "steps": [vars(step) for step in steps],
    }  # fmt: skip
    out = given.out / f"{at:%Y%m%dT%H%M%SZ}-{'gpu' if gpu is not None else 'cpu'}"
    out.mkdir(parents=True)
    write_json(out / "result.json", result)
    (out / "table.md").write_text(table(result), encoding="utf-8")
    print(f"\n{table(result)}\nwritten to {out}")
    return 0 if all(step.outcome == "done" for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
