"""Which machine and GPU each server gets, from the settings of a swarm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.errors import BadInput
from swarmlab.settings import load
from swarmlab.swarm.cluster import CUDA_VISIBLE, ClusterSettings
from swarmlab.swarm.network import NetworkSettings
from swarmlab.swarm.places import dealt, gpus_of
from swarmlab.swarm.server import ServerHandle, server_args, server_argv
from swarmlab.swarm.spec import ServerSpec, SwarmSpec, memory_bytes, validate
from swarmlab.types import Span


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    servers = tuple(ServerSpec(f"s{index}", Span(index, index + 1)) for index in range(5))
    return SwarmSpec(tmp_path, "m", 5, servers)


def host(*gpus) -> Any:
    return SimpleNamespace(gpus=gpus, address="10.1.0.7", temp_dir=Path("/tmp/there"))


def test_servers_are_dealt_to_machines_and_to_their_gpus(spec):
    first, second = host("0", "1"), host("4")
    places = dealt(replace(spec, cluster=ClusterSettings(kind="ray", nodes=2)), [first, second])
    assert [place for place, _ in places] == [first, second, first, second, first]
    assert [gpu[CUDA_VISIBLE] for _, gpu in places] == ["0", "4", "1", "4", "0"]


def test_neighbours_may_share_a_machine(spec):
    first, second = host(), host()
    places = dealt(
        replace(spec, cluster=ClusterSettings(kind="ray", nodes=2, deal="in_groups")), [first, second]
    )
    assert [place for place, _ in places] == [first, first, first, second, second]
    assert {gpu[CUDA_VISIBLE] for _, gpu in places} == {""}  # what Ray did not give is not seen


def test_one_that_joins_later_gets_the_next_gpu(spec):
    assert gpus_of(spec, host("0", "1"), 6)[-1] == {CUDA_VISIBLE: "1"}


def test_behind_nat_it_is_announced_at_both_addresses_and_listens_at_its_machines(spec):
    spec = replace(spec, cluster=ClusterSettings(bind="node", public_ip="8.8.8.8"))
    handle = ServerHandle(spec.servers[0], "Q", 20000, Path("/tmp/there/s0.id"), Path("s0.log"), host(), {})
    argv = server_argv(spec, handle, [])
    at = argv.index("--announce_maddrs")
    assert argv[at + 1 : at + 3] == ["/ip4/10.1.0.7/tcp/20000", "/ip4/8.8.8.8/tcp/20000"]
    assert argv[at + 3].startswith("--")
    at = argv.index("--host_maddrs")
    assert argv[at + 1] == "/ip4/10.1.0.7/tcp/20000"
    assert argv[at + 2].startswith("--")


def test_a_server_listens_and_is_announced_at_its_machines_address(spec):
    handle = ServerHandle(spec.servers[0], "Q", 20000, Path("/tmp/there/s0.id"), Path("s0.log"), host(), {})
    argv = server_argv(spec, handle, ["/ip4/10.1.0.1/tcp/1/p2p/Q"])
    maddr = "/ip4/10.1.0.7/tcp/20000"
    assert argv[argv.index("--host_maddrs") + 1] == argv[argv.index("--announce_maddrs") + 1] == maddr
    assert argv[argv.index("--throughput") + 1] == "100.0"
    assert "--cache_dir" not in argv


def test_a_server_that_measures_itself_writes_nothing_into_the_home_folder(spec):
    handle = ServerHandle(spec.servers[0], "Q", 20000, Path("/tmp/there/s0.id"), Path("s0.log"), host(), {})
    argv = server_argv(replace(spec, throughput="measured"), handle, [])
    assert argv[argv.index("--throughput") + 1] == "eval"
    assert argv[argv.index("--cache_dir") + 1] == "/tmp/there"


def test_a_server_is_told_what_to_emulate_and_to_measure_only_if_it_is_to(spec):
    own = replace(spec.servers[0], options=(("policy", "petals"),))
    handle = ServerHandle(own, "Q", 20000, Path("/tmp/there/s0.id"), Path("s0.log"), host(), {})
    told = server_args(spec, handle, [])
    assert (told["name"], told["policy"], told["network"], told["measures"]) == ("s0", "petals", {}, None)
    slow = replace(spec, throughput="measured", network=NetworkSettings("x", "emulated", 100.0, 100.0))
    told = server_args(slow, handle, [])
    assert told["network"] == {"rate_mbps": 100.0, "delay_s": 0.05}
    assert told["measures"] == {"rate_mbps": 100.0}


def test_servers_with_a_python_of_their_own_need_more_memory(spec):
    fresh = replace(spec, cluster=ClusterSettings(start="fresh"))
    assert memory_bytes(fresh) - memory_bytes(spec) >= len(spec.servers) * 500 * 2**20
    weights = replace(spec, block_bytes=2**30)
    assert memory_bytes(weights) - memory_bytes(spec) == 5 * 2**30
    # on a GPU, weights take none of the machine's memory
    assert memory_bytes(replace(weights, device="cuda")) == memory_bytes(replace(spec, device="cuda"))


def test_slurm_is_refused_outside_a_job_of_ours(spec):
    with pytest.raises(BadInput, match=r"swarmlab\.swarm\.slurm"):
        validate(replace(spec, cluster=ClusterSettings(kind="slurm")))
    validate(replace(spec, cluster=ClusterSettings(kind="slurm", address="10.0.0.1:1234")))


def test_what_servers_may_announce_is_given_or_measured(spec):
    with pytest.raises(BadInput, match=r"swarm\.throughput"):
        validate(replace(spec, throughput="guessed"))


@pytest.mark.parametrize(
    ("name", "rate_mbps", "rtt_ms"),
    [("1gbit_5ms", 1000, 5), ("100mbit_5ms", 100, 5), ("100mbit_100ms", 100, 100)],
)
def test_the_papers_networks(name, rate_mbps, rtt_ms):
    network = load(["+exp=failover", f"network={name}"])[0].network
    assert (network.name, network.by, network.rate_mbps, network.rtt_ms) == (
        name,
        "emulated",
        rate_mbps,
        rtt_ms,
    )


def test_a_job_of_slurm_says_where_its_ray_is(monkeypatch):
    monkeypatch.setenv("SWARMLAB_RAY_ADDRESS", "10.0.0.5:4321")
    monkeypatch.setenv("SWARMLAB_NODES", "3")
    monkeypatch.setenv("SWARMLAB_GPUS_PER_NODE", "2")
    cluster = load(["+exp=failover", "cluster=slurm"], elsewhere=True)[0].cluster
    assert (cluster.kind, cluster.address, cluster.nodes, cluster.gpus_per_node) == (
        "slurm",
        "10.0.0.5:4321",
        3,
        2,
    )
    assert cluster.bind == "node"
