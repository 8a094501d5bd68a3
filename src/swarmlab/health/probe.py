"""Runs what may crash, hang or leave processes behind as a child process, and judges what it said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmlab.health.finding import Finding, fail, ok, warn
from swarmlab.health.gpus import CUDA_ORDER
from swarmlab.health.packages import REINSTALL


@dataclass(frozen=True)
class Report:
    """What a probe said.

    :param values: the JSON object on the last line of its output; empty if it gave none
    :param error: why there are no values, in one line; empty if there are
    :param left_behind: True if processes of its group outlived it (they have been ended)
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    left_behind: bool = False


def run_probe(module: str, *, timeout_s: float = 120.0) -> Report:
    """Run ``python -m module`` as a process group of its own and leave nothing of it.

    :param module: prints one JSON object as its last line and exits 0
    """
    with tempfile.TemporaryDirectory(prefix="swarmlab-doctor-") as folder:
        # files, not pipes: a child that outlives the probe would hold a pipe open
        output, errors = Path(folder, "output"), Path(folder, "errors")
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**CUDA_ORDER, **os.environ, "TMPDIR": folder},
            )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Report(error=f"no answer within {timeout_s:g} s")
        finally:
            left_behind = _end_group(process)
        return _read(process.returncode, output.read_text(), errors.read_text(), left_behind=left_behind)


def judge_imports(report: Report) -> Finding:
    """Judge the probe that imports every package a run needs, petals last."""
    if report.error:
        return fail("imports", report.error, REINSTALL)
    failed = [f"{name} ({error})" for name, error in report.values["failed"].items()]
    if failed:
        return fail("imports", "; ".join(failed), REINSTALL)
    return ok("imports", f"{', '.join(report.values['imported'])} in {report.values['seconds']:.0f} s")


def judge_p2pd(report: Report) -> Finding:
    """Judge the probe that lets two libp2p daemons talk over 127.0.0.1."""
    remedy = f"check that 127.0.0.1 is up and that programs may run from .venv (noexec?); then {REINSTALL}"
    if report.error:
        return fail("p2pd", report.error, remedy)
    if report.left_behind:
        return fail("p2pd", "did not stop when it was told to", remedy)
    return ok("p2pd", f"two daemons started, met and stopped in {report.values['seconds']:.1f} s")


def judge_gpu(report: Report, *, driver: bool) -> Finding:
    """Judge the probe that computes on each GPU; having none is fine.

    :param driver: True if the machine has an NVIDIA device, whether or not torch can use it
    """
    if report.error:
        return fail("gpu", report.error, "mend the driver, or hide the GPU with CUDA_VISIBLE_DEVICES=")
    values = report.values
    if values["devices"]:
        return ok("gpu", f"{', '.join(values['devices'])} (torch {values['torch']})")
    if driver:
        remedy = "runs use the CPU; for a CUDA build of torch see requirements/README.md"
        return warn("gpu", f"there is one, but torch {values['torch']} cannot use it", remedy)
    return ok("gpu", f"none; runs use the CPU (torch {values['torch']})")


def has_nvidia_device() -> bool:
    return Path("/dev/nvidiactl").exists()


def check_probes() -> list[Finding]:
    """Run the three probes one after the other."""
    return [
        judge_imports(run_probe("swarmlab.bridge.import_probe")),
        judge_p2pd(run_probe("swarmlab.bridge.p2p_probe")),
        judge_gpu(run_probe("swarmlab.health.gpu_probe"), driver=has_nvidia_device()),
    ]


def _end_group(leader: subprocess.Popen[bytes]) -> bool:
    """Kill what is left of a process group; True if anything but its leader was."""
    leader_alive = leader.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        return not leader_alive
    return False


def _read(returncode: int, output: str, errors: str, *, left_behind: bool) -> Report:
    last = output.strip().rpartition("\n")[2]
    with suppress(json.JSONDecodeError):
        values = json.loads(last)
        if returncode == 0 and isinstance(values, dict):
            return Report(values, left_behind=left_behind)
    said = errors.strip().rpartition("\n")[2] or last or "it said nothing"
    return Report(error=f"exit code {returncode}: {said}", left_behind=left_behind)
