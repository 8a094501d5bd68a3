"""What a process of the orchestrator must know of the machine it is on: its address, a place for sockets, its clock."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from swarmlab.channel import MAX_SOCKET_PATH_BYTES
from swarmlab.errors import BadInput
from swarmlab.health.addresses import own_addresses, unroutable_block

LOOPBACK = "127.0.0.1"
# An address of the block kept for documentation: nobody is there, and connecting a datagram socket sends nothing.
NOWHERE = ("198.51.100.1", 9)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The longest paths in it: swarmlab-XXXXXXXX/NNNNN/torch-shm-dir-XXXXXX/manager.sock, and Ray's
# swarmlab-XXXXXXXX/session_YYYY-MM-DD_hh-mm-ss_XXXXXX_NNNNNNN/sockets/plasma_store.
SWARM_SOCKET_BYTES, RAY_SOCKET_BYTES = 58, 84
PREFIX, OWNER = "swarmlab-", ".owner"

_locks: dict[Path, int] = {}  # of this process's folders


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
    for address in own_addresses():
        if ipaddress.ip_address(address) in network:
            return address
    raise BadInput("cluster.bind", bind, f"a network that {socket.gethostname()} has an address in")


def swarm_address(bind: str) -> str:
    """As :func:`address_of`, for what others find by libp2p.

    :raises BadInput: also if libp2p would tell nobody of that address
    """
    address = address_of(bind)
    if (block := unroutable_block(address)) is not None:
        others = [one for one in own_addresses() if unroutable_block(one) is None and one != LOOPBACK]
        allowed = f"loopback, or a network with one of {others}" if others else "loopback"
        raise BadInput(
            "cluster.bind", bind, f"{allowed}: libp2p tells nobody of {address}, as of all in {block}"
        )
    return address


def boot_id() -> str:
    """The same for two processes exactly if they share a kernel, and with it the monotonic clock."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def make_temp_dir(prefix: str = PREFIX, inside_bytes: int = SWARM_SOCKET_BYTES) -> Path:
    """A new folder that sockets may live in: their paths are limited, and some systems have long ones.

    Folders whose makers were killed before :func:`remove_temp_dir` are removed first.

    :param prefix: begins with PREFIX
    :param inside_bytes: what the longest path in it takes, with the name of the folder itself
    :raises BadInput: if there is no such place
    """
    roots, limit = (Path(tempfile.gettempdir()), Path("/tmp")), MAX_SOCKET_PATH_BYTES - inside_bytes
    for root in roots:
        if len(os.fsencode(root)) <= limit and os.access(root, os.W_OK):
            _remove_abandoned(root)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
            _own(folder)
            return folder
    allowed = f"a writable folder whose path has at most {limit} bytes (sockets live in it)"
    raise BadInput("TMPDIR", str(roots[0]), allowed)


def remove_temp_dir(folder: Path) -> None:
    """With all that is in it, also if it is gone already."""
    shutil.rmtree(folder, ignore_errors=True)
    if (lock := _locks.pop(folder, None)) is not None:
        os.close(lock)


def _own(folder: Path) -> None:
    """Lock a file in it for as long as this process lives; it gets its name only when it is locked."""
    with suppress(OSError):  # a file system without locks: nobody will remove the folder for us
        draft = folder / f"{OWNER}.new"
        lock = _locks[folder] = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / OWNER)


def _remove_abandoned(root: Path) -> None:
    """Our folders whose owners are dead."""
    for owner in root.glob(f"{PREFIX}*/{OWNER}"):
        with suppress(OSError):  # somebody else's, in use, or just removed
            if owner.parent.is_symlink() or owner.lstat().st_uid != os.getuid():
                continue
            lock = os.open(owner, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
            finally:
                os.close(lock)
