"""Reads the DHT of a running swarm from outside: joins as a client that stores nothing and answers nobody."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hivemind.dht import DHTNode

from swarmlab.bridge.compat import PRIVATE_NETWORK
from swarmlab.bridge.snapshot import read_view
from swarmlab.errors import SwarmFailed
from swarmlab.types import SwarmView

# where petals' servers announce public models: {dht_prefix: {"num_blocks": ..., "repository": ...}}
MODELS_KEY = "_petals.models"
START_S = 30.0
END_S = 5.0


class DhtReader:
    """A node of the DHT in this thread; it works while one of its methods runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node: Any) -> None:
        self._loop, self._node = loop, node

    def models(self) -> dict[str, int]:
        """Prefix to number of blocks of the models that their servers announce; names that begin with ``_`` are not."""
        found = self._run(self._node.get(MODELS_KEY, latest=True))
        entries = getattr(found, "value", None)
        models: dict[str, int] = {}
        for prefix, entry in entries.items() if isinstance(entries, Mapping) else ():
            info = getattr(entry, "value", None)
            n_blocks = info.get("num_blocks") if isinstance(info, Mapping) else None
            if isinstance(prefix, str) and isinstance(n_blocks, int) and 0 < n_blocks < math.inf:
                models[prefix] = n_blocks
        return models

    def view(self, prefix: str, n_blocks: int) -> tuple[SwarmView, list[str]]:
        """The swarm as it stands, and what was wrong with records."""
        return self._run(read_view(self._node, prefix, n_blocks))

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)


@contextmanager
def reading(initial_peers: Sequence[str]) -> Iterator[DhtReader]:
    """A reader of the DHT that one of these peers is in.

    :param initial_peers: multiaddresses with a peer id, ``/ip4/127.0.0.1/tcp/31337/p2p/Qm...``
    :raises SwarmFailed: if none of them can be reached
    """
    loop, before = asyncio.new_event_loop(), set(threading.enumerate())
    try:
        try:
            # a node that reads would else store what it found at the peer that is nearest to the key
            options: Any = {
                "client_mode": True,
                "cache_nearest": 0,
                "startup_timeout": START_S,
                **PRIVATE_NETWORK,
            }
            node = loop.run_until_complete(DHTNode.create(initial_peers=list(initial_peers), **options))
        except Exception as error:  # whatever of libp2p's daemon, the address or the network
            raise SwarmFailed(
                f"no peer of the swarm could be reached: {type(error).__name__}: {error}"
            ) from error
        try:
            yield DhtReader(loop, node)
        finally:
            loop.run_until_complete(node.shutdown())
    finally:
        _end(loop, [one for one in threading.enumerate() if one not in before])


def _end(loop: asyncio.AbstractEventLoop, threads: Sequence[threading.Thread]) -> None:
    """Close the loop after what hivemind leaves running in it.

    :param threads: those since it began; of them, asyncio's own wait for the end of a process and tell the loop, and
        complain on stderr if it is closed by then
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(_all_ended(left))
    for thread in threads:
        if "waitpid" in thread.name:
            thread.join(END_S)
    loop.close()


async def _all_ended(tasks: set[asyncio.Task]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
