"""One task of a Slurm job made by ``swarmlab.swarm.slurm``: ``slurm_member FOLDER OVERRIDES...`` on every machine.

Task 0 starts Ray, writes where it is into the folder, runs the experiment, and says that it is over; the others join
and stay until then. Whoever joins must know the token in the folder, which only the job's user can read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.machine import address_of
from swarmlab.swarm.ports import PORTS, free_ports
from swarmlab.swarm.ray_process import RAY_ENV, head_options, new_token, ray_running
from swarmlab.swarm.ready import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ADDRESS, TOKEN, OVER = "address", "token", "over"
JOIN_S = 600.0  # machines of a job do not start at the same moment
RUN = [sys.executable, "-m", "swarmlab.run", "cluster=slurm"]
# For the run to end its swarm after a signal. Slurm kills what is left 30 s after it (KillWait, unless set otherwise).
RUN_LEAVE_S = 25.0
# The ports of Ray's workers are kept away from those of servers.
WORKER_PORTS = ["--min-worker-port=10002", f"--max-worker-port={PORTS.start - 1}"]


def publish(folder: Path, name: str, text: str) -> None:
    """Write a file at once: who waits for it sees all of it."""
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(text, encoding="utf-8")
    draft.replace(folder / name)


def await_file(folder: Path, names: Sequence[str], deadline_s: float) -> str:
    """The first of these files that another machine publishes.

    :raises SwarmFailed: if it does not within ``deadline_s`` seconds
    """

    def found() -> Path | None:
        return next((folder / name for name in names if (folder / name).exists()), None)

    try:
        return wait_for(found, deadline_s, f"one of {', '.join(names)} in {folder}").read_text(
            encoding="utf-8"
        )
    except TimeoutError as error:
        raise SwarmFailed(f"the job's first task does not say where it is: {error}") from None


def resources(env: Mapping[str, str]) -> list[str]:
    """What Ray is told that this machine has: what the job asked for, not what is in it."""
    return [f"--num-cpus={env['SWARMLAB_CPUS_PER_NODE']}", f"--num-gpus={env['SWARMLAB_GPUS_PER_NODE']}"]


def ray_folder(env: Mapping[str, str]) -> Path:
    """Of Ray's own files on each machine; Ray wants the same path on all of them, and a short one."""
    return Path("/tmp", f"swarmlab-job-{env['SLURM_JOB_ID']}")


def lead(folder: Path, overrides: Sequence[str]) -> int:
    """Task 0: the exit code of the experiment."""
    host = address_of("node")
    ports = free_ports(2, set(), host)
    publish(folder, TOKEN, new_token())
    env = {**os.environ, **_ray_env(folder), "SWARMLAB_RAY_ADDRESS": f"{host}:{ports[0]}"}
    options = [*head_options(host, ports), f"--temp-dir={ray_folder(env)}", *WORKER_PORTS, *resources(env)]
    code = 1
    try:
        with ray_running(options, env, ray_folder(env), folder / "ray-0.log"):
            publish(folder, ADDRESS, f"{host}:{ports[0]}")
            code = _run(overrides, env)
    finally:
        publish(folder, OVER, str(code))
    return code


def _run(overrides: Sequence[str], env: Mapping[str, str]) -> int:
    """The experiment's exit code. It is not told of a signal: Slurm sends those to every process of a job."""
    with subprocess.Popen([*RUN, *overrides], env=dict(env)) as run:
        try:
            return run.wait()
        except SystemExit:
            with suppress(subprocess.TimeoutExpired):
                run.wait(RUN_LEAVE_S)
            raise
        finally:
            run.kill()


def follow(folder: Path) -> int:
    """Any other task: 0 when the experiment is over, however it ended; 1 if Ray ended first."""
    over = folder / OVER
    address = await_file(folder, (ADDRESS, OVER), JOIN_S)
    if over.exists():
        return 0
    env = {**os.environ, **_ray_env(folder)}
    own = [f"--address={address}", f"--node-ip-address={address_of('node')}"]
    options, log_path = [*own, *WORKER_PORTS, *resources(env)], folder / f"ray-{env['SLURM_PROCID']}.log"
    try:
        with ray_running(options, env, ray_folder(env), log_path, over.exists) as ray:
            while not over.exists():
                if ray.poll() is not None:
                    return 1
                time.sleep(0.5)
    except SwarmFailed:
        if not over.exists():  # otherwise nobody has missed this machine
            raise
    return 0


def _ray_env(folder: Path) -> dict[str, str]:
    return {**RAY_ENV, "RAY_AUTH_TOKEN_PATH": str(folder / TOKEN)}


def _leave(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough, and must not be cut short
    raise SystemExit(128 + number)


def main() -> int:
    folder, overrides = Path(sys.argv[1]), sys.argv[2:]
    # scancel sends this first; the run ends its swarm, and this process what it started
    signal.signal(signal.SIGTERM, _leave)
    return lead(folder, overrides) if os.environ["SLURM_PROCID"] == "0" else follow(folder)


if __name__ == "__main__":
    sys.exit(main())
