"""A swarm as a Slurm job: writes the job's script, for ``sbatch`` to read.

``python -m swarmlab.swarm.slurm --nodes 3 --gpus-per-node 1 -- +exp=failover model=llama_65b_synthetic | sbatch``

A user of Slurm does not know which machines the job will get. The job's first task starts Ray and writes the address
into a folder that all see; the others read it and join; then the first runs the experiment with ``cluster=slurm``
(``swarmlab.swarm.slurm_member``).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swarmlab.errors import Arguments, BadInput, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[3]
TIME = re.compile(r"(\d+-)?\d{1,3}(:\d\d){0,2}")


@dataclass(frozen=True)
class JobOrder:
    """What a job should be.

    :param overrides: of ``python -m swarmlab.run``
    :param nodes: machines; each runs one group of servers
    :param gpus_per_node: 0 for servers without a GPU
    :param cpus_per_node: processors on each; a server with a GPU needs about two
    :param time: limit, as Slurm writes it
    :param sbatch: further options of sbatch, as in ``--partition=gpu``
    :param folder: that all machines see; the job's own folder is made in it
    """

    overrides: Sequence[str]
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: int = 4
    time: str = "1:00:00"
    sbatch: Sequence[str] = ()
    folder: Path = ROOT / "results/slurm"

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("gpus_per_node", 0), ("cpus_per_node", 1)):
            if getattr(self, name) < least:
                raise BadInput(name, getattr(self, name), f"at least {least}")
        if not TIME.fullmatch(self.time):
            raise BadInput("time", self.time, "minutes, or H:MM:SS, or D-H:MM:SS")
        if not any(one.startswith("+exp=") for one in self.overrides):
            raise BadInput("+exp", None, "an experiment after --, as in -- +exp=failover")
        if any(one.startswith("cluster=") for one in self.overrides):
            raise BadInput("cluster", None, "nothing: the job chooses cluster=slurm itself")
        for option in self.sbatch:
            if not re.fullmatch(r"--[a-z-]+(=\S+)?", option):
                raise BadInput("sbatch", option, "an option of sbatch as one word, as in --partition=gpu")


def job_script(order: JobOrder, python: str = sys.executable) -> str:
    """The script, for ``sbatch`` to read.

    :param python: the interpreter with swarmlab, at the same path on every machine
    """
    options = [
        "--job-name=swarmlab",
        f"--nodes={order.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={order.cpus_per_node}",
        *([f"--gpus-per-node={order.gpus_per_node}"] if order.gpus_per_node else []),
        f"--time={order.time}",
        "--output=swarmlab-%j.log",
        *order.sbatch,
    ]
    member = [python, "-m", "swarmlab.swarm.slurm_member"]
    folder = f'{shlex.quote(str(order.folder.resolve()))}/"$SLURM_JOB_ID"'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in options),
        "set -eu",
        f"cd {shlex.quote(str(ROOT))}",
        f"export PYTHONPATH={shlex.quote(str(ROOT / 'src'))}",
        f"export {' '.join(f'{name}={value}' for name, value in _told(order).items())}",
        f"umask 077; mkdir -p {folder}",
        # an experiment that fails must not cost the other tasks the time to end their part of Ray
        f"srun --kill-on-bad-exit=0 {shlex.join(member)} {folder} {shlex.join(order.overrides)}",
    ]
    return "\n".join(lines) + "\n"


def refusal(order: JobOrder, python: str = sys.executable) -> str:
    """Why the run would refuse the job's settings, in one line; empty if it takes them.

    Asked of the very interpreter that the job uses, with what the job will tell it of its machines.
    """
    command = [python, "-m", "swarmlab.doctor", "settings", "cluster=slurm", *order.overrides]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **_told(order)}
    asked = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return "" if asked.returncode == 0 else asked.stderr.strip().rpartition("\n")[2]


def _told(order: JobOrder) -> dict[str, str]:
    """What ``configs/cluster/slurm.yaml`` reads."""
    return {
        "SWARMLAB_NODES": str(order.nodes),
        "SWARMLAB_GPUS_PER_NODE": str(order.gpus_per_node),
        "SWARMLAB_CPUS_PER_NODE": str(order.cpus_per_node),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the script; exit code 2 for bad input, also for what the run would refuse."""
    parser = Arguments(
        prog="python -m swarmlab.swarm.slurm",
        description="Print a job script; give it to sbatch: ... | sbatch",
    )
    parser.add_argument("--nodes", type=int, default=1, help="machines")
    parser.add_argument("--gpus-per-node", type=int, default=0)
    parser.add_argument("--cpus-per-node", type=int, default=4)
    parser.add_argument("--time", default="1:00:00", help="limit: minutes, H:MM:SS or D-H:MM:SS")
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="another option of sbatch; repeatable"
    )
    parser.add_argument("--folder", type=Path, default=JobOrder.folder, help="that every machine sees")
    parser.add_argument("overrides", nargs="+", help="of python -m swarmlab.run, after --")
    given = vars(parser.parse_args(argv))
    try:
        order = JobOrder(**given)
    except BadInput as error:
        return refuse(error)
    if said := refusal(order):
        return refuse(said.removeprefix("swarmlab: "))
    sys.stdout.write(job_script(order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
