"""A step of a script as a process of its own, ended when its share of the time is over, with what it took of a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LEAVE_S = 60.0  # for a swarm to be torn down
POLL_S = 0.5
EXIT_UNKNOWN = 3  # of swarmlab.run


@dataclass(frozen=True)
class Ended:
    """How a step went.

    :param outcome: done, failed (with its exit code) or out of time
    :param lines: that it printed
    """

    outcome: str
    seconds: float
    peak_device_bytes: int | None
    lines: list[str]


def run_within(
    budget_s: float, command: Sequence[str], env: Mapping[str, str], log: Path, gpu: str | None
) -> Ended:
    """
    :param log: of what it prints
    :param gpu: whose memory to look at; None for none
    """
    started_s = time.monotonic()
    with log.open("wb") as out, _watched(gpu) as peak:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=dict(env), start_new_session=True)
        outcome = _wait(process, budget_s)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return Ended(outcome, round(time.monotonic() - started_s, 1), max(peak, default=None), lines)


def _wait(process: subprocess.Popen[bytes], budget_s: float) -> str:
    """How it ended; out of time, or when we are to end ourselves, it gets a moment to tear down what it started."""
    try:
        code = process.wait(budget_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"out of time ({budget_s:g} s)"
    except BaseException:  # it has a session of its own: Ctrl-C reaches us only
        _end(process)
        raise
    # a shortened run has not all that a verdict asks for; the result says which verdict it got
    return "done" if code in (0, EXIT_UNKNOWN) else f"failed with exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _watched(gpu: str | None) -> Iterator[list[int]]:
    """Bytes in use on the GPU, sampled as long as the block lasts; nothing on a CPU.

    :param gpu: as nvidia-smi knows it: number or UUID; of a part of one (MIG) it tells nothing
    """
    samples: list[int] = []
    if gpu is None:
        yield samples
        return
    over = threading.Event()

    def sample() -> None:
        command = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not over.wait(POLL_S):
            found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            if found.isdigit():
                samples.append(int(found) * 2**20)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
