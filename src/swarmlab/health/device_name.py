"""What computes, in words, for the record of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from swarmlab.health.gpus import CUDA_VISIBLE, visible_gpus

ANSWER_S = 20.0


def device_name(device: str, gpus: Sequence[int] = ()) -> str:
    """``cpu``, or the device with the names of its GPUs as the driver has them, if it says.

    :param device: as torch names it
    :param gpus: numbers of the GPUs that are used, as in ``cluster.gpus``; empty: those of ``device``, or all
    :raises BadInput: for a number that is not there
    """
    if not device.startswith("cuda"):
        return device
    kind, _, number = device.partition(":")
    numbers = list(gpus) or ([int(number)] if number else None)
    names = [one.name for one in _listed(numbers)]
    shown = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(names).items())
    return f"{kind} ({shown})" if shown else device


@dataclass(frozen=True)
class Listed:
    """A GPU as nvidia-smi lists it."""

    index: str
    uuid: str
    name: str


def _listed(numbers: Sequence[int] | None) -> list[Listed]:
    """The GPUs that are meant; None: all that this process may use. None of them if the driver cannot be asked."""
    found, mask = _all(), os.environ.get(CUDA_VISIBLE)
    if numbers is None and mask is None:
        return found
    meant = (mask or "").split(",") if numbers is None else visible_gpus(numbers, mask)
    return [
        one for name in meant for one in found if name == one.index or (name and one.uuid.startswith(name))
    ]


def _all() -> list[Listed]:
    """This machine's GPUs, in the order of nvidia-smi."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=index,uuid,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ", 2) for line in done.stdout.splitlines()]
    return [Listed(*row) for row in rows if len(row) == 3]
