"""Ray's own processes on this machine: brought up within a deadline, and ended with the block or with their parent.

They live in a session of their own, so that a signal to the group of whoever started them (Ctrl-C, ``kill -- -GROUP``)
ends the swarm in order first, and Ray after it; Slurm signals other sessions of a job, too, all at the same moment.
``python -m swarmlab.swarm.ray_process PARENT FOLDER OPTIONS...`` is their supervisor: when PARENT dies, it ends
them, however that came, and removes FOLDER.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.ready import log_tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SUPERVISOR = [sys.executable, "-m", "swarmlab.swarm.ray_process"]
# without what asks a cloud for more machines, and what copies logs to a driver that has not asked for them
RAY_START = [
    sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--no-monitor",
    "--include-log-monitor=false",
]  # fmt: skip
START_S, START_TRIES = 120.0, 6
STARTED = b"Ray runtime started"  # printed by `ray start` when this machine's part of it is up
STOP_S = 15.0  # for Ray to end in order; its supervisor takes no longer
LEAVE_S = STOP_S + 5.0
PR_SET_PDEATHSIG = 1
RAY_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # nothing is served through Ray that would have to be finished first
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # whoever joins must show a token: Ray listens on every network of a machine, whatever address it is given
    "RAY_AUTH_MODE": "token",
}


def head_options(address: str, ports: Sequence[int]) -> list[str]:
    """Of ``ray start`` for a cluster's first machine.

    :param ports: two; the second is of a way in that is not used, but that two clusters on one machine would both want
    """
    port, unused = ports
    own = ["--head", f"--node-ip-address={address}", f"--port={port}", f"--ray-client-server-port={unused}"]
    return [*own, "--include-dashboard=false"]


def new_token() -> str:
    """What whoever joins must show, in ``RAY_AUTH_TOKEN`` or a file that ``RAY_AUTH_TOKEN_PATH`` names."""
    return secrets.token_hex(32)


@contextmanager
def ray_running(
    options: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    log_path: Path,
    in_vain: Callable[[], bool] = lambda: False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Ray's processes of this machine, up; ended with the block, and nothing of them is left.

    :param options: of ``ray start``
    :param folder: of Ray's own files, removed at the end
    :param log_path: what they print
    :param in_vain: whether to wait no longer for them
    :raises SwarmFailed: if they do not come up
    """
    try:
        process = _started(options, env, folder, log_path, in_vain)
        try:
            yield process
        finally:
            _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    options: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    log_path: Path,
    in_vain: Callable[[], bool],
) -> subprocess.Popen[bytes]:
    """On a busy machine Ray gives up after 30 s, and the next attempt succeeds."""
    for _ in range(START_TRIES):
        if (process := _attempt(options, env, folder, log_path, in_vain)) is not None:
            return process
        if in_vain():
            break
    raise SwarmFailed(
        f"Ray does not start on {socket.gethostname()}; the end of {log_path}:\n{log_tail(log_path)}"
    )


def _attempt(
    options: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    log_path: Path,
    in_vain: Callable[[], bool],
) -> subprocess.Popen[bytes] | None:
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*SUPERVISOR, str(os.getpid()), str(folder), *options],
            env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip

    def decided() -> bool:
        return STARTED in log_path.read_bytes() or process.poll() is not None or in_vain()

    try:
        with suppress(TimeoutError):
            wait_for(decided, START_S, "Ray is up")
    except BaseException:  # such as Ctrl-C
        _end(process)
        raise
    if process.poll() is None and STARTED in log_path.read_bytes():
        return process
    _end(process)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_S)
    with suppress(ProcessLookupError):  # whatever of the session is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _supervise(parent: int, folder: Path, options: Sequence[str]) -> int:
    """Run ``ray start`` until it ends, or until a signal, or until the parent is gone; then nothing of it is left."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:  # it was faster
        return 1
    ray = subprocess.Popen(
        [*RAY_START, *options],
        preexec_fn=lambda: _die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
    )
    try:
        return ray.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.terminate()
        try:
            ray.wait(STOP_S)
        except subprocess.TimeoutExpired:
            ray.kill()
            ray.wait()
        shutil.rmtree(folder, ignore_errors=True)
        if os.getpgrp() == os.getpid():  # whatever Ray has left, and this process
            os.killpg(0, signal.SIGKILL)


def _die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(_supervise(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
