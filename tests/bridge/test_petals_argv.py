"""Arguments that petals' server would refuse are found without starting it."""

from __future__ import annotations

import pytest

from swarmlab.bridge.petals_argv import check_server_argv
from swarmlab.errors import BadInput


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--attn_cache_tokens", "16"],
        ["--attn_cache_tokens=16", "--skip_reachability_check"],
        ["--initial_peers", "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/tcp/2"],
        ["--throughput", "12.5", "--quant_type", "nf4"],
        ["--use_auth_token"],
        ["--mean_balance_check_period", "1e3"],
    ],
)
def test_what_petals_knows_is_let_through(argv):
    check_server_argv(argv, "swarm.argv")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--atn_cache_tokens", "16"], "unrecognized arguments"),
        (["--attn_cache_tokens"], "expected one argument"),
        (["--attn_cache_tokens", "many"], "invalid int value"),
        (["--update_period", "soon"], "invalid float value"),
        (["attn_cache_tokens"], "unrecognized arguments"),
        (["--skip_reachability_check", "yes"], "unrecognized arguments"),
    ],
)
def test_what_petals_would_refuse_is_bad_input(argv, said):
    with pytest.raises(BadInput, match=said) as caught:
        check_server_argv(argv, "swarm.argv")
    assert caught.value.field == "swarm.argv"


@pytest.mark.parametrize(
    "argv",
    [
        ["--announce_maddrs", "/ip4/192.0.2.2/tcp/1"],
        ["--announce_maddrs", "/ip4/10.1.0.7/tcp/1", "/ip4/0.0.0.0/tcp/1"],
        ["--host_maddrs", "/ip4/203.0.113.1/tcp/1"],
        ["--public_ip", "198.51.100.1", "--port", "31337"],
    ],
)
def test_an_address_that_libp2p_tells_nobody_of_is_bad_input(argv):
    with pytest.raises(BadInput, match="libp2p tells others"):
        check_server_argv(argv, "swarm.argv")


def test_addresses_of_a_swarm_on_one_machine_are_its_own():
    elsewhere = ["--announce_maddrs", "/ip4/8.8.8.8/tcp/1"]
    check_server_argv(elsewhere, "swarm.argv")
    with pytest.raises(BadInput, match="an address of this machine: ") as refused:
        check_server_argv(elsewhere, "swarm.argv", here=True)
    assert (refused.value.field, refused.value.value) == ("swarm.argv", "8.8.8.8")
    assert refused.value.allowed.endswith("; behind NAT: cluster.public_ip=8.8.8.8 cluster.bind=node")
    with pytest.raises(BadInput, match="an address of this machine: ") as refused:
        check_server_argv(["--host_maddrs", "/ip4/8.8.8.8/tcp/1"], "swarm.argv", here=True)
    assert "NAT" not in refused.value.allowed, "nobody listens at a router's address"
    for maddr in ("/ip4/0.0.0.0/tcp/0", "/ip4/127.0.0.2/tcp/1", "/ip6/::/tcp/0", "/dns4/here/tcp/1"):
        check_server_argv(["--host_maddrs", maddr], "swarm.argv", here=True)


@pytest.mark.parametrize(
    ("argv", "value", "remedy"),
    [
        (["--public_ip", "8.8.8.8", "--port", "31337"], "--public_ip 8.8.8.8", "cluster.public_ip=8.8.8.8"),
        (["--port", "31337"], "--port 31337", "cluster.public_ip=ADDRESS"),
    ],
)
def test_what_petals_takes_only_without_the_addresses_of_a_swarm_is_bad_input(argv, value, remedy):
    with pytest.raises(BadInput, match=f"behind NAT: {remedy} cluster.bind=node") as refused:
        check_server_argv(argv, "swarm.argv")
    assert (refused.value.field, refused.value.value) == ("swarm.argv", value)
