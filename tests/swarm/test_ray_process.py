"""Ray's processes: tried again, ended with the block, with their parent, or at once; Ray itself is played."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from swarmlab.errors import SwarmFailed
from swarmlab.swarm import ray_process
from swarmlab.swarm.ready import wait_for

GONE_S = 20.0

# Starts a child as `ray start` does, says that it is up, and ends only when told to; or not even then.
PLAYED = """
import signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
print("Ray runtime started", flush=True)
try:
    time.sleep(600)
finally:
    child.kill()
"""
OWNER = """
import os, sys, time
from pathlib import Path
from swarmlab.swarm import ray_process
ray_process.SUPERVISOR = sys.argv[2:]
folder = Path(sys.argv[1])
with ray_process.ray_running([], os.environ, folder / "ray", folder / "ray.log"):
    print("up", flush=True)
    time.sleep(600)
"""


def supervisor(played):
    """The real supervisor, with a script in the place of `ray start`."""
    program = f"""
        import sys
        from pathlib import Path
        from swarmlab.swarm import ray_process
        ray_process.RAY_START = [sys.executable, {str(played)!r}]
        ray_process.STOP_S = 1.0
        sys.exit(ray_process._supervise(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
    """
    return [sys.executable, "-c", textwrap.dedent(program)]


@pytest.fixture
def played(tmp_path):
    script = tmp_path / "played_ray.py"
    script.write_text(PLAYED)
    (tmp_path / "ray").mkdir()
    return script


def gone(*pids):
    """Whether none of them runs any more; zombies, which nobody here can collect, count as gone."""
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            continue
    return True


def processes_of(log_path):
    """The children that the played Ray named in its log."""
    return [int(line.split()[1]) for line in log_path.read_text().splitlines() if line.startswith("child")]


def test_it_is_tried_again_and_ended_with_the_block(failing_ray, tmp_path):
    failing_ray(2)
    folder = tmp_path / "ray"
    folder.mkdir()
    with ray_process.ray_running([], os.environ, folder, tmp_path / "ray.log") as process:
        assert process.poll() is None
    assert process.poll() is not None
    assert (tmp_path / "attempts").read_text() == "x\n" * 2
    assert not folder.exists()


def test_one_that_never_comes_up_is_told_with_its_last_words(failing_ray, tmp_path):
    failing_ray(99)
    with (
        pytest.raises(SwarmFailed, match=r"does not start(.|\n)*timed out during startup"),
        ray_process.ray_running([], os.environ, tmp_path / "ray", tmp_path / "ray.log"),
    ):
        pytest.fail("it was taken for running")
    assert (tmp_path / "attempts").read_text() == "x\n" * ray_process.START_TRIES


@pytest.mark.parametrize("options", [[], ["stubborn"]])
def test_all_of_it_ends_with_the_block(monkeypatch, played, tmp_path, options):
    monkeypatch.setattr(ray_process, "SUPERVISOR", supervisor(played))
    log = tmp_path / "ray.log"
    with ray_process.ray_running(options, os.environ, tmp_path / "ray", log) as process:
        pids = [process.pid, *processes_of(log)]
        assert not gone(*pids)
        assert (
            os.getsid(process.pid) == process.pid != os.getsid(0)
        )  # a signal to our group does not reach it
    wait_for(lambda: gone(*pids), GONE_S, "nothing of it is left")
    assert not (tmp_path / "ray").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_of_it_ends_when_whoever_started_it_is_killed(played, tmp_path, number):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), *supervisor(played)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    pids = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert len(pids) == 3  # the supervisor, Ray, and what it started
    owner.send_signal(number)
    owner.communicate()
    wait_for(lambda: gone(*pids), GONE_S, "nothing of it is left")
    assert not (tmp_path / "ray").exists()


def test_a_token_cannot_be_guessed():
    assert len(ray_process.new_token()) == 64
    assert ray_process.new_token() != ray_process.new_token()
