"""Which IPv4 addresses libp2p finds a way to: servers at any other come up, and no client reaches them."""

from __future__ import annotations

import socket
from ipaddress import AddressValueError, IPv4Address, IPv4Network

import psutil

ANYWHERE = "0.0.0.0"
# Neither public nor private in go-multiaddr's net/private.go: libp2p drops them from what it tells others, in silence.
UNROUTABLE = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "192.0.0.0/26",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)


def unroutable_block(address: str) -> IPv4Network | None:
    """The block, kept for documentation, tests or multicast, that makes libp2p drop an address; None for any other.

    :param address: of IPv4; of what is none nothing is known
    """
    try:
        one = IPv4Address(address)
    except AddressValueError:
        return None
    return next((block for block in UNROUTABLE if one in block), None)


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine's interfaces, in their order."""
    interfaces = psutil.net_if_addrs().values()
    return [one.address for addresses in interfaces for one in addresses if one.family == socket.AF_INET]
