"""The warden removes a swarm's files also where all processes of a job get the same signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarmlab.swarm.ready import wait_for

NURSERY = """
import os, sys
from pathlib import Path
from swarmlab.bridge.inference import warden
pid, end = warden.start(Path(sys.argv[1]))
print(pid, flush=True)
os.read(0, 1)  # until this process is killed
"""


def ignored_by(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_everybody_leaves_no_folder(tmp_path, number):
    (folder := tmp_path / "swarm").mkdir()
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert nursery.stdout is not None
    pid = int(nursery.stdout.readline())
    assert wait_for(lambda: ignored_by(pid) >> (number - 1) & 1, 30, "the warden is at work")
    os.kill(pid, number)
    assert folder.exists()
    nursery.kill()
    nursery.communicate()
    wait_for(lambda: not folder.exists(), 30, "the folder is gone")
