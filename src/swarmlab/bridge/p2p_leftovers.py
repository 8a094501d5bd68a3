"""Takes from a p2p daemon what a killed handler left there: the daemon would go on sending it every other stream.

Calls that are no streams go over a connection that ends with the process; streams are sent to a socket file, and the
daemon keeps its path until somebody takes it back (hivemind's ``remove_stream_handler``, which the dead cannot call).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hivemind.p2p import P2P
from hivemind.p2p.p2p_daemon_bindings.control import ControlClient
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError
from hivemind.utils.multiaddr import Multiaddr

SOCKETS = "p2pclient-*.sock"


def remove_leftovers(dht: Any, handler_class: Any) -> int:
    """Take back the stream handlers of processes that have died; how many sockets they had.

    :param dht: hivemind's, in whose process the daemon can be reached
    :param handler_class: a hivemind servicer, for the names of its streams
    """
    handler_class._collect_rpc_handlers()
    names = [
        handler_class._get_handle_name(None, handler.method_name)
        for handler in handler_class._rpc_handlers
        if handler.stream_input or handler.stream_output
    ]
    return dht.run_coroutine(partial(_take_back, names=names))


def dead_sockets(prefix: str) -> list[Path]:
    """Socket files on which nobody listens.

    :param prefix: hivemind's, ``/unix`` and the beginning of the files' paths
    """
    start = Path(prefix.removeprefix("/unix") + SOCKETS)
    return [path for path in start.parent.glob(start.name) if not _answers(path)]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True  # full, but alive
        except OSError:
            return False
    return True


async def _take_back(_dht: Any, node: Any, *, names: Sequence[str]) -> int:
    # runs in the DHT's process
    paths = dead_sockets(P2P._UNIX_SOCKET_PREFIX)
    connector = node.p2p._client.control.daemon_connector
    for path in paths:
        # hivemind's own request, in the name of the dead
        address, handlers = Multiaddr(f"/unix{path}"), dict.fromkeys(names)
        dead: Any = SimpleNamespace(daemon_connector=connector, listen_maddr=address, handlers=handlers)
        for name in names:
            with suppress(P2PDaemonError):  # it had not come to registering this one
                await ControlClient.remove_stream_handler(dead, name)
    return len(paths)
