"""Which server gets which place, and settings that cannot work."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.settings import STEERED, load
from swarmlab.swarm import cluster, machine, network
from swarmlab.swarm.cluster import CUDA_VISIBLE, ClusterSettings, deal, gpu_variables, starts_fresh
from swarmlab.swarm.network import NetworkSettings
from swarmlab.swarm.node import shifted


@given(count=st.integers(0, 40), places=st.integers(1, 9), how=st.sampled_from(cluster.DEALS))
def test_places_get_equally_many(count, places, how):
    dealt = deal(count, places, how)
    assert len(dealt) == count
    sizes = [Counter(dealt)[place] for place in range(places)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_neighbours_are_apart_or_together():
    assert deal(5, 2, "in_turn") == [0, 1, 0, 1, 0]
    assert deal(5, 2, "in_groups") == [0, 0, 0, 1, 1]


def test_each_server_sees_its_own_gpu():
    seen = gpu_variables(("2", "5"), 3, "in_turn", inherit=True)
    assert seen == [{CUDA_VISIBLE: "2"}, {CUDA_VISIBLE: "5"}, {CUDA_VISIBLE: "2"}]


@pytest.mark.parametrize(
    ("value", "inherit", "expected"), [("1,3", True, "1,3"), (None, True, None), ("1", False, "")]
)
def test_without_a_list_a_server_sees_what_the_command_sees_or_nothing(monkeypatch, value, inherit, expected):
    monkeypatch.delenv(CUDA_VISIBLE, raising=False)
    if value is not None:
        monkeypatch.setenv(CUDA_VISIBLE, value)
    assert gpu_variables((), 1, "in_turn", inherit=inherit) == [{CUDA_VISIBLE: expected}]


def test_a_server_with_a_gpu_starts_python_anew():
    assert not starts_fresh(ClusterSettings(), "cpu")
    assert starts_fresh(ClusterSettings(), "cuda")
    assert starts_fresh(ClusterSettings(start="fresh"), "cpu")
    assert not starts_fresh(ClusterSettings(start="fork"), "cpu")


@pytest.mark.parametrize(
    ("settings", "device", "field"),
    [
        ({"kind": "kubernetes"}, "cpu", "cluster.kind"),
        ({"deal": "at_random"}, "cpu", "cluster.deal"),
        ({"placement": "tight"}, "cpu", "cluster.placement"),
        ({"start": "later"}, "cpu", "cluster.start"),
        ({"bind": "everywhere"}, "cpu", "cluster.bind"),
        ({"public_ip": "8.8.8.8"}, "cpu", "cluster.public_ip"),
        ({"public_ip": "home.example.org", "bind": "node"}, "cpu", "cluster.public_ip"),
        ({"public_ip": "127.0.0.2", "bind": "node"}, "cpu", "cluster.public_ip"),
        ({"public_ip": "203.0.113.7", "bind": "node"}, "cpu", "cluster.public_ip"),
        ({"public_ip": "8.8.8.8", "bind": "node", "kind": "ray"}, "cpu", "cluster.public_ip"),
        ({"nodes": 0}, "cpu", "cluster.nodes"),
        ({"kind": "ray", "nodes": 2}, "cpu", "cluster.nodes"),
        ({"gpus_per_node": -1}, "cpu", "cluster.gpus_per_node"),
        ({"cpus_per_node": -0.5}, "cpu", "cluster.cpus_per_node"),
        ({"gpus": [0, 0]}, "cuda", "cluster.gpus"),
        ({"gpus": [-1]}, "cuda", "cluster.gpus"),
        ({"gpus": [0], "kind": "ray"}, "cuda", "cluster.gpus"),
        ({"gpus": [0]}, "cpu", "swarm.device"),
        ({"gpus": [0]}, "cuda:1", "swarm.device"),
        ({"kind": "ray"}, "cuda", "cluster.gpus_per_node"),
        ({"start": "fork"}, "cuda", "cluster.start"),
    ],
)
def test_a_cluster_that_cannot_work_is_refused(settings, device, field):
    with pytest.raises(BadInput) as refused:
        cluster.check(ClusterSettings(**settings), device)
    assert refused.value.field == field


@pytest.mark.parametrize("bind", ["loopback", "node", "10.1.0.0/16"])
def test_clusters_that_can_work(bind):
    cluster.check(ClusterSettings(kind="ray", address="auto", nodes=3, gpus_per_node=2, bind=bind), "cuda")
    cluster.check(ClusterSettings(gpus=[0, 1]), "cuda")
    cluster.check(ClusterSettings(bind="10.1.0.0/16", public_ip="8.8.8.8"), "cpu")


def test_the_address_to_listen_on():
    assert machine.address_of("loopback") == "127.0.0.1"
    assert machine.address_of("127.0.0.0/8") == "127.0.0.1"
    with pytest.raises(BadInput, match=r"cluster\.bind"):
        machine.address_of("203.0.113.0/24")


def test_one_machine_has_one_boot_id():
    assert machine.boot_id() == machine.boot_id() != ""


def test_a_row_of_another_machine_gets_our_clock():
    row = shifted(b'{"kind": "logs", "mono_s": 5.5, "line": "x"}', 100.0)
    assert json.loads(row) == {"kind": "logs", "mono_s": 105.5, "line": "x"}
    assert json.loads(shifted(b'{"kind": "logs"}', 100.0)) == {"kind": "logs"}
    with pytest.raises(SwarmFailed, match="not a row"):
        shifted(b"half a li", 1.0)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"by": "magic"}, "network.by"),
        ({"by": "emulated", "rate_mbps": 0.0}, "network.rate_mbps"),
        ({"by": "emulated", "rtt_ms": -1.0}, "network.rtt_ms"),
        ({"by": "host", "rtt_ms": 5.0}, "network.by"),
    ],
)
def test_a_network_that_cannot_be_is_refused(settings, field):
    with pytest.raises(BadInput) as refused:
        network.check(NetworkSettings(**settings))
    assert refused.value.field == field


def test_netem_is_believed_only_if_the_kernel_has_it(monkeypatch):
    shaped = NetworkSettings("x", "netem", 100.0, 100.0)
    monkeypatch.setattr(network, "qdiscs", lambda: "qdisc noqueue 0: dev lo root refcnt 2")
    with pytest.raises(BadInput, match=r"network\.by"):
        network.check(shaped)
    monkeypatch.setattr(
        network, "qdiscs", lambda: "qdisc netem 8001: dev lo root refcnt 2 limit 1000 delay 50ms"
    )
    network.check(shaped)


def test_a_label_says_how_the_network_was_made():
    assert NetworkSettings().label() == "network of the host"
    assert NetworkSettings("p", "emulated", 100.0, 5.0).label() == "100 Mbit/s, 5 ms round trip (emulated)"
    assert "netem" in NetworkSettings("p", "netem", None, 5.0).label()


def test_servers_are_told_only_of_what_they_must_emulate():
    assert NetworkSettings().server_options() == {}
    assert NetworkSettings("p", "netem", 100.0, 5.0).server_options() == {}
    assert NetworkSettings("p", "emulated", 100.0, 5.0).server_options() == {
        "rate_mbps": 100.0,
        "delay_s": 0.0025,
    }


@pytest.mark.parametrize("experiment", STEERED)
@pytest.mark.parametrize(
    "cluster_settings",
    [
        ["cluster=slurm"],
        ["cluster=ray", "cluster.address=10.1.0.1:6379"],
        ["cluster=ray", "cluster.share_files=false"],
    ],
)
def test_servers_that_are_steered_by_files_stay_on_this_machine(experiment, cluster_settings):
    with pytest.raises(BadInput, match=rf"local, for \+exp={experiment}: it steers its servers by files"):
        load([f"+exp={experiment}", *cluster_settings], elsewhere=True)
    load([f"+exp={experiment}"])
    load([f"+exp={experiment}", "cluster=ray"])  # on this machine, in the same folder
    load(["+exp=failover", *cluster_settings], elsewhere=True)


def test_a_stored_run_has_no_servers_to_steer():
    load(["+exp=sim_vs_real", "cluster=slurm", "rebalance.run_dir=somewhere"], elsewhere=True)
