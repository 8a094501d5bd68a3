"""TCP ports of this machine that servers may listen on."""

from __future__ import annotations

import random
import socket

from swarmlab.errors import SwarmFailed

HOST = "127.0.0.1"
# Below the range from which systems take ports for outgoing connections, so that nobody takes the port of a
# server between its death and its restart.
PORTS = range(18000, 32000)


def free_ports(count: int, taken: set[int], address: str = HOST) -> list[int]:
    """Ports of this machine that nothing listens on, in an order that differs between runs on one machine."""
    candidates = (port for port in random.SystemRandom().sample(PORTS, len(PORTS)) if port not in taken)
    found: list[int] = []
    while len(found) < count:
        port = next(candidates, None)
        if port is None:
            raise SwarmFailed(f"no {count} free ports in {PORTS.start}..{PORTS.stop - 1}")
        if is_free(port, address):
            found.append(port)
    return found


def is_free(port: int, address: str = HOST) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
