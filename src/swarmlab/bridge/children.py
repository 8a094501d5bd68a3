"""What runs in the processes that the nursery forks: first steps of every child, the bootstrap node, a server."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarmlab.bridge import compat
from swarmlab.channel import Channel, ChannelClosed, connect

PR_SET_PDEATHSIG = 1

# A private swarm on one machine: no NAT to cross, no relay to look for, identities of our own making. Names as in
# hivemind's P2P.create, to which petals' Server and hivemind's DHTNode hand them on.
PRIVATE_NETWORK = {
    "auto_nat": False,
    "nat_port_map": False,
    "use_relay": False,
    "use_auto_relay": False,
    "check_if_identity_free": False,
}

# petals imports bitsandbytes (and with it half of torch) only when it loads a block: 2 s in each server.
NEEDED_LATER = ("petals.cli.run_server", "petals.utils.peft", "swarmlab.bridge.snapshot")


def prepare() -> None:
    """Import, once and in the nursery, all that its children will need."""
    compat.apply()
    for module in NEEDED_LATER:
        importlib.import_module(module)
    # The objects of the imports live for ever; unfrozen, each child's garbage collector would copy their pages.
    gc.collect()
    gc.freeze()


def identity(path: str) -> str:
    """Make the key file at ``path`` if it is not there; return the peer id (base58) that follows from it."""
    from hivemind.p2p import P2P, PeerID

    if not os.path.exists(path):
        P2P.generate_identity(path)
    return PeerID.from_identity(Path(path).read_bytes()).to_base58()


def run(request: dict[str, Any], temp_dir: Path) -> int:
    """Turn the freshly forked process into what the request asks for; return its exit status.

    :param request: a spawn request as in ``swarmlab.bridge.nursery``
    :param temp_dir: the child's own; it is also its working folder
    """
    try:
        _settle(request, temp_dir)
        return _resolve(request["kind"])(request["args"], request.get("channel", "")) or 0
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _settle(request: dict[str, Any], temp_dir: Path) -> None:
    """Own log, own temporary folder, own signals, own random numbers, nothing shared with siblings."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request.get("env") or {})
    os.environ["TMPDIR"] = tempfile.tempdir = str(temp_dir)
    os.chdir(temp_dir)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if sys.platform == "linux":
        # The warden kills the whole group; this covers the instant before it knows of the group.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    compat.after_fork(temp_dir)


def _resolve(kind: str) -> Callable[[dict[str, Any], str], int | None]:
    module, _, function = kind.partition(":")
    return getattr(importlib.import_module(f"swarmlab.bridge.{module}"), function or "main")


def server(args: dict[str, Any], _channel: str) -> None:
    """The unmodified server of petals, as its command line starts it.

    :param args: ``argv``: arguments of ``petals.cli.run_server``
    """
    from petals.cli import run_server

    # The command line has no options for these, but Server takes them as keywords. A server that is told that it is
    # reached directly asks nobody about it (that would cost two more p2p daemons at every start).
    network = {name: value for name, value in PRIVATE_NETWORK.items() if name != "use_auto_relay"}
    run_server.Server = functools.partial(run_server.Server, reachable_via_relay=False, **network)
    sys.argv = ["run_server", *args["argv"], "--no_auto_relay"]
    run_server.main()


def bootstrap(args: dict[str, Any], channel: str) -> None:
    """The first node of the swarm's DHT, which also tells the orchestrator what the DHT holds.

    :param args: ``maddr`` to listen on, ``identity_path``
    """
    asyncio.run(_bootstrap(args, connect(channel)))


async def _bootstrap(args: dict[str, Any], channel: Channel) -> None:
    from hivemind.dht import DHTNode

    node = await DHTNode.create(
        host_maddrs=[args["maddr"]], identity_path=args["identity_path"], startup_timeout=60, **PRIVATE_NETWORK
    )
    maddrs = [str(address) for address in await node.get_visible_maddrs()]
    channel.send({"event": "listening", "maddrs": maddrs})
    loop = asyncio.get_running_loop()
    try:
        while True:
            request = await loop.run_in_executor(None, channel.recv)
            try:
                answer = {"ok": True, **await _ANSWERS[request["op"]](node, request)}
            except Exception as error:  # a peer that does not answer is an answer too
                answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            channel.send({"id": request["id"], **answer})
    except ChannelClosed:
        await node.shutdown()


async def _answer_snapshot(node: Any, request: dict[str, Any]) -> dict[str, Any]:
    from swarmlab.bridge import snapshot

    view, problems = await snapshot.read_view(node, request["prefix"], request["n_blocks"])
    return {"view": snapshot.view_to_json(view), "problems": problems}


async def _answer_info(node: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Ask a server itself, past the DHT, whether it serves a block."""
    from hivemind.p2p import PeerID
    from hivemind.proto import runtime_pb2
    from petals.server.handler import TransformerConnectionHandler

    stub = TransformerConnectionHandler.get_stub(node.protocol.p2p, PeerID.from_base58(request["peer_id"]))
    uid = runtime_pb2.ExpertUID(uid=f"{request['prefix']}.{request['block']}")
    await stub.rpc_info(uid, timeout=request["timeout_s"])
    return {}


_ANSWERS = {"snapshot": _answer_snapshot, "info": _answer_info}
