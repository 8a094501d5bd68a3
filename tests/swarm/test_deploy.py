"""The handles of a running swarm, on five servers of a generated model."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import psutil
import pytest

from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import Lifecycle
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.schedule import Fault
from swarmlab.health.processes import group_states
from swarmlab.swarm.deploy import deploy
from swarmlab.swarm.ready import wait_for
from swarmlab.swarm.spec import ServerSpec
from swarmlab.types import ServerState, Span
from tests.swarm.conftest import SERVERS
from tests.swarm.test_no_network import connections

pytestmark = pytest.mark.swarm


def test_all_servers_are_online_with_their_blocks(tiny_swarm):
    view = tiny_swarm.snapshot()
    held = {server.name: view.get(server.peer_id) for server in tiny_swarm.servers.values()}
    assert {name: record.span for name, record in held.items()} == {
        server.name: server.span for server in SERVERS
    }
    assert all(record.state is ServerState.ONLINE for record in held.values())
    assert all(record.throughput_tps == 100.0 for record in held.values())
    assert all(record.cache_tokens_left for record in held.values())
    assert view.uncovered() == ()
    assert tiny_swarm.problems == []


def test_a_record_says_when_it_lapses(tiny_swarm):
    view = tiny_swarm.snapshot()
    left_s = [record.expires_at_s - view.seen_at_s for record in view.servers]
    assert all(0 < seconds <= tiny_swarm.spec.expiration_s for seconds in left_s)


def test_servers_answer_past_the_dht_and_only_for_what_they_hold(tiny_swarm):
    assert all(tiny_swarm.answers(name) for name in tiny_swarm.servers)
    node, first = tiny_swarm._node(), tiny_swarm.servers["first"]
    assert not node.serves(first.peer_id, tiny_swarm.spec.dht_prefix, 15, timeout_s=2)
    stranger = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
    assert not node.serves(stranger, tiny_swarm.spec.dht_prefix, 0, timeout_s=2)


def test_all_listen_on_this_machine_only(tiny_swarm):
    for server in tiny_swarm.servers.values():
        listening = [
            connection.laddr
            for pid in group_states(server.pgid)
            for _, connection in connections(pid)
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {address.ip for address in listening} <= {"127.0.0.1"}
        assert server.port in {address.port for address in listening}


def test_each_server_is_a_group_of_its_own(tiny_swarm):
    groups = [set(group_states(server.pgid)) for server in tiny_swarm.servers.values()]
    assert all(len(group) >= 4 for group in groups)
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert os.getpgid(0) not in {server.pgid for server in tiny_swarm.servers.values()}


def test_a_killed_server_comes_back_as_the_same_peer(tiny_swarm):
    server = tiny_swarm.servers["middle"]
    peer_id, pid = server.peer_id, server.pid
    assert tiny_swarm.kill("middle")
    assert server.child.wait(10) == -signal.SIGKILL
    wait_for(lambda: server.state == "dead", 10, "the state")
    assert group_states(pid) == {}
    assert not tiny_swarm.answers("middle")
    assert not tiny_swarm.kill("middle")
    tiny_swarm.restart("middle")
    view = tiny_swarm.wait_ready(["middle"])
    assert server.pid != pid
    assert view.get(peer_id).span == Span(5, 11)
    assert tiny_swarm.answers("middle")


def test_a_server_that_comes_back_with_other_blocks_is_seen_with_these_alone(tiny_swarm):
    """Its old records live on in the DHT; joined to the new ones they would make it 0:12."""
    server = tiny_swarm.servers["left"]
    tiny_swarm.kill("left")
    before = tiny_swarm.hold("left", Span(8, 12))
    try:
        tiny_swarm.restart("left")
        assert tiny_swarm.wait_ready(["left"]).get(server.peer_id).span == Span(8, 12)
        assert tiny_swarm.answers("left")
    finally:
        tiny_swarm.kill("left")
        server.child.wait(10)
        assert tiny_swarm.hold("left", before) == Span(8, 12)


def test_a_running_server_cannot_be_started_again(tiny_swarm):
    with pytest.raises(SwarmFailed, match="still runs"):
        tiny_swarm.restart("last", deadline_s=0)


def test_waiting_for_a_dead_server_shows_its_log(tiny_swarm):
    tiny_swarm.kill("left")
    tiny_swarm.servers["left"].child.wait(10)
    with pytest.raises(SwarmFailed, match=r"server left ended with status -9(.|\n)*Started"):
        tiny_swarm.wait_ready(["left"])


def test_a_stopped_server_does_not_answer_until_it_goes_on(tiny_swarm):
    server = tiny_swarm.servers["right"]
    assert tiny_swarm.stop("right")
    assert server.state == "stopped"
    assert not tiny_swarm.answers("right", timeout_s=0.5)
    with pytest.raises(SwarmFailed, match="not ready within"):
        tiny_swarm.wait_ready(["right"], deadline_s=0)
    assert tiny_swarm.cont("right")
    tiny_swarm.wait_ready(["right"])
    assert tiny_swarm.answers("right")


def test_a_server_that_leaves_says_so(tiny_swarm):
    # not one that was stopped before: its DHT node avoids for a while all that did not answer meanwhile, so its
    # goodbye may reach nobody
    server = tiny_swarm.servers["left"]
    assert tiny_swarm.leave("left")
    assert server.child.wait(60) is not None

    def offline():
        record = tiny_swarm.snapshot().get(server.peer_id)
        return record is not None and record.state is ServerState.OFFLINE

    wait_for(offline, 15.0, "the server is seen OFFLINE")
    assert server.peer_id not in {record.peer_id for record in tiny_swarm.snapshot().serving()}


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.STOP, Fault.LEAVE])
def test_a_fault_on_a_real_server_is_confirmed_and_healed(tiny_swarm, fault):
    server = tiny_swarm.servers["last"]
    rows = []
    life = Lifecycle(ProcessFault(fault, "last", tiny_swarm, lambda: server.pgid), rows.append, {})
    for stage in (life.setup, life.inject, life.confirm):
        stage()
    assert not tiny_swarm.answers("last", timeout_s=0.5)
    for stage in (life.heal, life.cleanup):
        stage()
    assert life.valid
    assert tiny_swarm.answers("last")
    assert [row["ok"] for row in rows] == [True] * 5


def test_a_server_that_cannot_start_is_named_with_its_last_words(one_server, tmp_path):
    broken = replace(one_server.servers[0], argv=("--custom_module_path", "/no/such/module.py"))
    states = []
    with (
        pytest.raises(SwarmFailed, match=r"server only ended with status 1(.|\n)*/no/such/module\.py"),
        deploy(
            replace(one_server, servers=(broken,)), tmp_path, on_state=lambda *state: states.append(state)
        ),
    ):
        pytest.fail("it was taken for ready")
    assert [state[:2] for state in states] == [
        ("nursery", "starting"), ("nursery", "online"), ("bootstrap", "starting"), ("bootstrap", "online"),
        ("only", "starting"), ("only", "dead"),
    ]  # fmt: skip
    assert (tmp_path / "logs/only.log").read_text()


def test_a_server_may_choose_its_blocks_and_a_deadline_is_kept(one_server, tmp_path):
    chooser = ServerSpec("chooser", n_blocks=16, argv=("--mean_balance_check_period", "1000"))
    with deploy(replace(one_server, servers=(chooser,)), tmp_path, wait=False) as swarm:
        with pytest.raises(SwarmFailed, match="server chooser is still starting"):
            swarm.wait_ready(deadline_s=0)
        assert swarm.wait_ready().servers[0].span == Span(0, 16)
        assert swarm.answers("chooser")
