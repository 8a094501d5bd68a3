"""Run as a child process: lets two libp2p daemons meet on 127.0.0.1 and stop, and prints one JSON line."""

from __future__ import annotations

import asyncio
import json
import time

import psutil
from hivemind.p2p import P2P

MEET_TIMEOUT_S = 30.0
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


async def meet() -> str:
    """Start two daemons, the second knowing only the first's address, and wait until they are connected.

    :returns: the peer id of the first
    :raises TimeoutError: if they do not meet in time
    """
    first = await P2P.create(host_maddrs=[LOOPBACK], nat_port_map=False, auto_nat=False)
    try:
        known = await first.get_visible_maddrs()
        second = await P2P.create(
            initial_peers=known, host_maddrs=[LOOPBACK], nat_port_map=False, auto_nat=False
        )
        try:
            await asyncio.wait_for(_connected(second, first), MEET_TIMEOUT_S)
        finally:
            await second.shutdown()
    finally:
        await first.shutdown()
    return str(first.peer_id)


async def _connected(p2p: P2P, other: P2P) -> None:
    while other.peer_id not in {peer.peer_id for peer in await p2p.list_peers()}:
        await asyncio.sleep(0.05)


def main() -> None:
    start_s = time.monotonic()
    peer = asyncio.run(meet())
    left = [child.name() for child in psutil.Process().children(recursive=True)]
    if left:
        raise SystemExit(f"still running after shutdown: {', '.join(left)}")
    print(json.dumps({"peer": peer, "seconds": time.monotonic() - start_s}))


if __name__ == "__main__":
    main()
