"""A whole swarm with a client talks to nobody but itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from swarmlab.health.processes import group_states
from swarmlab.swarm.deploy import deploy

KINDS = Path(__file__).resolve().parents[1] / "bridge" / "extra_kinds"

pytestmark = pytest.mark.swarm


@pytest.fixture
def audit(tmp_path, monkeypatch):
    """Every Python process of the swarm writes down what it connects to, binds or looks up."""
    path = tmp_path / "audit"
    path.touch()
    monkeypatch.setenv("PYTHONPATH", str(KINDS))
    monkeypatch.setenv("SWARMLAB_TEST_KINDS", str(KINDS))
    monkeypatch.setenv("SWARMLAB_TEST_AUDIT", str(path))
    return path


def far_addresses(pgids):
    """Addresses outside this machine that the processes, p2p daemons included, have to do with."""
    near = re.compile(r"127\.|::1$|::ffff:127\.")
    return [
        (name, connection)
        for pgid in pgids
        for pid in group_states(pgid)
        for name, connection in connections(pid)
        for address in (connection.laddr, connection.raddr)
        if address and not near.match(address.ip)
    ]


def connections(pid):
    """Name of a process and each of its connections; none of a helper that has ended since it was listed."""
    try:
        process = psutil.Process(pid)
        return [(process.name(), connection) for connection in process.net_connections("inet")]
    except psutil.NoSuchProcess:
        return []


def test_nobody_outside_is_asked(one_server, audit, tmp_path):
    with deploy(one_server, tmp_path) as swarm:
        args = {
            "model_path": str(one_server.model_path),
            "dht_prefix": one_server.dht_prefix,
            "initial_peers": swarm.initial_peers,
        }
        client = swarm.spawn("kinds_for_tests:generate", "client", args)
        channel = client.channel()
        said = [channel.recv(60), channel.recv(60)]
        pgids = [client.pgid, swarm.servers["only"].pgid, swarm._node()._child.pgid]
        while_loaded = far_addresses(pgids)
        said.append(channel.recv(60))
        after = far_addresses(pgids)
        assert client.wait(30) == 0
    assert [sorted(message) for message in said] == [["started"], ["loaded"], ["tokens"]]
    assert len(said[2]["tokens"][0]) == 7
    assert while_loaded == after == []
    lines = audit.read_text().splitlines()
    # p2p daemons are talked to over unix sockets; beside these only a probe for IPv6 binds to loopback
    assert any("socket.connect" in line for line in lines), (
        "nothing was written down: the test would see nothing"
    )
    inside = re.compile(r"socket\.(connect|bind) \(b?'/|socket\.bind \(\('::1', 0\),\)")
    outside = [line for line in lines if not inside.search(line)]
    assert outside == []


def test_the_audit_sees_a_look_up(audit):
    """The test above would pass if nothing were ever written down."""
    code = "import socket\ntry: socket.getaddrinfo('localhost', 1)\nexcept OSError: pass"
    env = {**os.environ, "PYTHONPATH": f"{KINDS}:{Path(__file__).resolve().parents[2] / 'src'}"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert "getaddrinfo" in audit.read_text()
