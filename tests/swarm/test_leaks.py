"""What a swarm leaves on a machine that others use, too."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmlab.swarm.leaks import Inventory, Stocktaker

BINDS = """
import socket, sys
found = socket.socket(socket.AF_UNIX)
found.bind(sys.argv[1])
found.listen()
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # the name of a socket may have 100 characters only
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bind():
    """Start a process with a given ``TMPDIR`` that binds a socket at a path."""
    children: list[subprocess.Popen[str]] = []

    def start(path: Path, temp_dir: Path) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", BINDS, str(path)], env={**os.environ, "TMPDIR": str(temp_dir)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "bound\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_what_others_leave_in_the_shared_folder_is_not_the_swarms(shared, bind):
    swarm = shared / "swarm"
    swarm.mkdir()
    stock = Stocktaker(swarm, shared)
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(shared / "foreign.sock"))
        bind(shared / "other.sock", shared / "swarm-of-others")
        assert stock.take() == Inventory(0, 0, 0)


def test_a_stray_socket_counts_after_its_process_has_died_too(shared, bind):
    swarm = shared / "swarm"
    swarm.mkdir()
    stock = Stocktaker(swarm, shared)
    child = bind(shared / "stray.sock", swarm)
    assert stock.take() == Inventory(1, 1, 0)
    child.kill()
    child.wait()
    assert stock.take() == Inventory(0, 1, 0)
    (shared / "stray.sock").unlink()
    assert stock.take() == Inventory(0, 0, 0)


def test_processes_of_the_servers_own_folders_count(shared, bind):
    inner = shared / "swarm" / "3"
    inner.mkdir(parents=True)
    (inner / "left").touch()
    bind(inner / "p2pd.sock", inner)
    assert Stocktaker(shared / "swarm", shared).take() == Inventory(1, 1, 1)
