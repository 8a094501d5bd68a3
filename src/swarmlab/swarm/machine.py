"""What a process of the orchestrator must know of the machine it is on: its address, a place for sockets, its clock."""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile
from pathlib import Path

import psutil

from swarmlab.channel import MAX_SOCKET_PATH_BYTES
from swarmlab.errors import BadInput

LOOPBACK = "127.0.0.1"
# An address of the block kept for documentation: nobody is there, and connecting a datagram socket sends nothing.
NOWHERE = ("198.51.100.1", 9)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The longest paths in it: swarmlab-XXXXXXXX/NNNNN/torch-shm-dir-XXXXXX/manager.sock, and Ray's
# swarmlab-XXXXXXXX/session_YYYY-MM-DD_hh-mm-ss_XXXXXX_NNNNNNN/sockets/plasma_store.
SWARM_SOCKET_BYTES, RAY_SOCKET_BYTES = 58, 84


def address_of(bind: str) -> str:
    """The IPv4 address of this machine that its processes should listen on.

    :param bind: ``loopback``, ``node`` (the address that it reaches others from) or a network, as in 10.1.0.0/16
    :raises BadInput: if it has none there
    """
    if bind == "loopback":
        return LOOPBACK
    if bind == "node":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(NOWHERE)
            except OSError:
                raise BadInput(
                    "cluster.bind", bind, "a network of this machine: it has no default route"
                ) from None
            return probe.getsockname()[0]
    network = ipaddress.IPv4Network(bind)
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and ipaddress.ip_address(one.address) in network:
                return one.address
    raise BadInput("cluster.bind", bind, f"a network that {socket.gethostname()} has an address in")


def boot_id() -> str:
    """The same for two processes exactly if they share a kernel, and with it the monotonic clock."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def make_temp_dir(prefix: str = "swarmlab-", inside_bytes: int = SWARM_SOCKET_BYTES) -> Path:
    """A new folder that sockets may live in: their paths are limited, and some systems have long ones.

    :param inside_bytes: what the longest path in it takes, with the name of the folder itself
    :raises BadInput: if there is no such place
    """
    roots, limit = (Path(tempfile.gettempdir()), Path("/tmp")), MAX_SOCKET_PATH_BYTES - inside_bytes
    for root in roots:
        if len(os.fsencode(root)) <= limit and os.access(root, os.W_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    allowed = f"a writable folder whose path has at most {limit} bytes (sockets live in it)"
    raise BadInput("TMPDIR", str(roots[0]), allowed)
