"""Which addresses clients find a way to."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from swarmlab.health.addresses import UNROUTABLE, own_addresses, unroutable_block


@pytest.mark.parametrize(
    "address", ["192.0.2.2", "198.51.100.1", "203.0.113.9", "0.0.0.0", "224.0.0.1", "255.255.255.255"]
)
def test_what_libp2p_drops(address):
    block = unroutable_block(address)
    assert block is not None
    assert IPv4Address(address) in block


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.0.7",
        "100.64.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.1.1",
        "8.8.8.8",
        "192.0.0.200",
        "::1",
        "host",
    ],
)
def test_what_it_tells_others_or_what_nothing_is_known_of(address):
    assert unroutable_block(address) is None


def test_no_block_is_private():
    private = ("10.0.0.0", "100.64.0.0", "127.0.0.0", "169.254.0.0", "172.16.0.0", "192.168.0.0")
    assert not any(IPv4Address(one) in block for one in private for block in UNROUTABLE)


def test_this_machine_has_itself():
    assert "127.0.0.1" in own_addresses()
