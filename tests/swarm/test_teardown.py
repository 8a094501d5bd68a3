"""However a run ends, nothing of its swarm is left: processes before and after, files, shared memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.swarm.leftovers import Machine, short_folder

ROOT = Path(__file__).resolve().parents[2]
ORCHESTRATOR = Path(__file__).with_name("orchestrator.py")
END_S = 60

pytestmark = pytest.mark.swarm


@pytest.fixture
def machine():
    folder = short_folder()
    yield Machine(folder)
    shutil.rmtree(folder)


class Orchestrator:
    """The script as a process in a group of its own, as a shell would start it."""

    def __init__(self, how, machine, tiny_model, run_dir):
        args = [how, run_dir, tiny_model.path, tiny_model.dht_prefix, tiny_model.n_blocks]
        self.process = subprocess.Popen(
            [sys.executable, ORCHESTRATOR, *map(str, args)],
            env={**machine.env(), "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline() == "ready\n"

    def go(self):
        """Let it end by itself; return its exit status and what it printed."""
        out, err = self.process.communicate("go\n", timeout=END_S)
        return self.process.returncode, out, err

    def signal(self, number):
        """As Ctrl-C in a terminal: to its whole process group."""
        os.killpg(self.process.pid, number)
        out, err = self.process.communicate(timeout=END_S)
        return self.process.returncode, out, err


@pytest.fixture
def start(machine, tiny_model, tmp_path):
    started = []

    def start(how):
        started.append(Orchestrator(how, machine, tiny_model, tmp_path))
        assert started[-1].ready, started[-1].process.communicate(timeout=END_S)
        return started[-1]

    yield start
    for orchestrator in started:
        orchestrator.process.kill()
        orchestrator.process.communicate()


def test_a_swarm_is_many_processes_and_all_are_found(start, machine):
    """The other tests would pass on nothing at all; this one counts what they must see go."""
    orchestrator = start("normal")
    found = machine.look()
    names = sorted(found.values())
    # orchestrator, nursery, warden, bootstrap, server, its DHT and its handler; and their daemons
    assert sum(name.startswith("python") for name in names) >= 7
    assert names.count("p2pd") >= 2
    assert names.count("torch_shm_manage") + names.count("torch_shm_manager") >= 1
    assert orchestrator.go()[:2] == (0, "torn down\n")
    assert machine.left() == []


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("exception", "something in the run went wrong"),
        ("child died", "server only ended with status -9"),
        ("nursery killed", "SwarmFailed"),
    ],
)
def test_ended_by_an_error(start, machine, how, error):
    orchestrator = start(how)
    machine.look()
    status, out, err = orchestrator.go()
    assert status == 1
    assert "torn down" not in out
    assert error in err
    assert machine.left() == []


@pytest.mark.parametrize("how", ["waits", "while starting"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_by_a_signal(start, machine, how, number):
    orchestrator = start(how)
    machine.look()
    if how == "waits":
        orchestrator.process.stdin.write("go\n")
        orchestrator.process.stdin.flush()
    status, out, err = orchestrator.signal(number)
    assert status == {signal.SIGTERM: 128 + number}.get(number, -number)
    assert "torn down" not in out
    assert machine.left() == []
    assert number is not signal.SIGINT or "KeyboardInterrupt" in err


def test_killed_while_a_server_is_stopped(start, machine):
    """A stopped process cannot notice anything by itself."""
    orchestrator = start("stopped server")
    machine.look()
    assert orchestrator.go()[0] == -signal.SIGKILL
    assert machine.left() == []
