"""Addresses that a swarm can be found at, and folders of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from swarmlab.errors import BadInput
from swarmlab.settings import load
from swarmlab.swarm import machine

OWNER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from swarmlab.swarm import machine
machine.MAX_SOCKET_PATH_BYTES = 4096
print(machine.make_temp_dir(sys.argv[2]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def addresses(monkeypatch):
    """Of this machine's interfaces, as the test wants them."""
    own = ["127.0.0.1", "192.0.2.2"]
    monkeypatch.setattr(machine, "own_addresses", lambda: own)
    return own


@pytest.mark.parametrize(("more", "allowed"), [((), "loopback: libp2p"), (("10.1.0.7",), "10.1.0.7")])
def test_an_address_that_libp2p_tells_nobody_of_is_refused_with_what_there_is(addresses, more, allowed):
    addresses.extend(more)
    with pytest.raises(BadInput, match=r"192\.0\.2\.2, as of all in 192\.0\.2\.0/24") as refused:
        machine.swarm_address("192.0.2.0/24")
    assert (refused.value.field, refused.value.value) == ("cluster.bind", "192.0.2.0/24")
    assert allowed in str(refused.value)
    assert machine.swarm_address("loopback") == "127.0.0.1"
    assert machine.address_of("192.0.2.0/24") == "192.0.2.2"  # Ray does not mind


def test_it_is_refused_before_a_run_begins_and_not_for_another_machine(addresses):
    overrides = ["+exp=failover", "cluster.bind=192.0.2.0/24"]
    with pytest.raises(BadInput, match=r"cluster\.bind"):
        load(overrides)
    load(overrides, elsewhere=True)
    addresses.append("10.1.0.7")
    load(["+exp=failover", "cluster.bind=10.1.0.0/16"])


@pytest.fixture
def owners(tmp_path):
    """Starts processes that have a folder each in ``tmp_path``: the folder and the process."""
    begun = []

    def owner(prefix: str = machine.PREFIX) -> tuple[Path, subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path), prefix],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun.append(process)
        assert process.stdout is not None
        return Path(process.stdout.readline().strip()), process

    yield owner
    for process in begun:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(owners, tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "MAX_SOCKET_PATH_BYTES", 4096)
    strange = tmp_path / "swarmlab-of-before"
    strange.mkdir()
    living, _ = owners()
    killed = [owners(prefix) for prefix in (machine.PREFIX, "swarmlab-run-")]
    for folder, process in killed:
        (folder / "sockets").mkdir()
        process.kill()
        process.wait()
    own = machine.make_temp_dir()
    assert not any(folder.exists() for folder, _ in killed)
    assert living.exists()
    assert strange.exists()
    assert machine.make_temp_dir() != own
    assert own.exists(), "its own folders are in use, too"
    machine.remove_temp_dir(own)
    assert not own.exists()
    machine.remove_temp_dir(own)
