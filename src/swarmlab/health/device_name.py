"""What computes, in words, for the record of a run."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence

ANSWER_S = 20.0


def device_name(device: str, gpus: Sequence[int] = ()) -> str:
    """``cpu``, or the device with the names of its GPUs as the driver has them, if it says.

    :param device: as torch names it
    :param gpus: numbers of the GPUs that are used; empty: those of ``device``, or all
    """
    if not device.startswith("cuda"):
        return device
    kind, _, number = device.partition(":")
    wanted = list(gpus) or ([int(number)] if number else [])
    names = [name for index, name in enumerate(_names()) if index in wanted or not wanted]
    shown = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(names).items())
    return f"{kind} ({shown})" if shown else device


def _names() -> list[str]:
    """Of this machine's GPUs, in the order of nvidia-smi; none if that cannot be asked."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
