"""What runs in the processes that the nursery forks: the first steps of each, the bootstrap node, a server.

``compat.apply()`` must have been called before this module is imported.
"""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.dht import DHTNode
from hivemind.p2p import P2P, PeerID
from hivemind.proto import runtime_pb2
from petals.cli import run_server
from petals.server.handler import TransformerConnectionHandler

from swarmlab.bridge import compat, snapshot
from swarmlab.bridge.blocks import source as block_source
from swarmlab.channel import Channel, ChannelClosed, connect

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1

# Keywords of petals' Server that its command line has no options for. A server that is told that it is reached
# directly asks nobody about it, and one whose key we made need not look whether another peer has it: each would cost
# a p2p daemon more at every start.
SERVER_KEYWORDS = {"reachable_via_relay": False, "use_relay": False, "check_if_identity_free": False}


def prepare() -> None:
    """Do once, in the nursery, what each child would have to do."""
    # petals imports this (and with it bitsandbytes and half of torch) when it loads a block: 2 s per server
    importlib.import_module("petals.utils.peft")
    # What was imported lives for ever; unfrozen, the garbage collector of each child would copy its pages.
    gc.collect()
    gc.freeze()


def identity(path: str) -> str:
    """Make the key file at ``path`` if it is not there; return the peer id (base58) that follows from it."""
    if not Path(path).exists():
        P2P.generate_identity(path)
    return PeerID.from_identity(Path(path).read_bytes()).to_base58()


def run(request: dict[str, Any], temp_dir: Path) -> int:
    """Turn the freshly forked process into what the request asks for; return its exit status.

    :param request: a spawn request as in ``swarmlab.bridge.nursery``
    :param temp_dir: the child's own; it is also its working folder
    """
    try:
        _settle(request, temp_dir)
        _prepare_server(request["args"])
        return _resolve(request["kind"])(request["args"], request.get("channel", "")) or 0
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001  this is the last frame of the process
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


def _prepare_server(args: dict[str, Any]) -> None:
    """What a server of any kind may be told beside its command line; other processes are told nothing of it.

    :param args: see ``traffic.install`` and ``throughput.install``
    """
    if args.get("network") or args.get("events_path"):
        importlib.import_module("swarmlab.bridge.traffic").install(args)
    if args.get("measures"):
        importlib.import_module("swarmlab.bridge.serving.throughput").install(args["measures"]["rate_mbps"])


def _resolve(kind: str) -> Callable[[dict[str, Any], str], int | None]:
    module, _, function = kind.partition(":")
    return getattr(importlib.import_module(f"swarmlab.bridge.{module}"), function or "main")


def server(args: dict[str, Any], _channel: str) -> None:
    """The unmodified server of petals, as its command line starts it.

    :param args: ``argv``: arguments of ``petals.cli.run_server``; ``store_dir`` and ``store_max_bytes`` of a block
        store, if blocks are to come through one
    """
    block_source.install(args)
    entry: Any = run_server
    entry.Server = functools.partial(entry.Server, **SERVER_KEYWORDS)
    sys.argv = ["run_server", *args["argv"], "--no_auto_relay"]
    entry.main()


def bootstrap(args: dict[str, Any], channel: str) -> None:
    """The first node of the swarm's DHT, which also tells the orchestrator what the DHT holds.

    :param args: ``maddr`` to listen on, ``identity_path``
    """
    asyncio.run(_bootstrap(args, connect(channel)))


async def _bootstrap(args: dict[str, Any], channel: Channel) -> None:
    node = await DHTNode.create(
        host_maddrs=[args["maddr"]], identity_path=args["identity_path"], startup_timeout=60
    )
    maddrs = [str(address) for address in await node.get_visible_maddrs()]
    channel.send({"event": "listening", "maddrs": maddrs})
    loop = asyncio.get_running_loop()
    try:
        while True:
            request = await loop.run_in_executor(None, channel.recv)
            try:
                answer = {"ok": True, **await _ANSWERS[request["op"]](node, request)}
            except Exception as error:  # noqa: BLE001  a peer that does not answer is an answer too
                answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            channel.send({"id": request["id"], **answer})
    except ChannelClosed:
        await node.shutdown()


async def _answer_snapshot(node: Any, request: dict[str, Any]) -> dict[str, Any]:
    view, problems = await snapshot.read_view(node, request["prefix"], request["n_blocks"])
    return {"view": snapshot.view_to_json(view), "problems": problems}


async def _answer_info(node: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Ask a server itself, past the DHT, whether it serves a block."""
    peer_id = PeerID.from_base58(request["peer_id"])
    stub: Any = TransformerConnectionHandler.get_stub(node.protocol.p2p, peer_id)
    messages: Any = runtime_pb2  # generated code, which type checkers cannot see into
    uid = messages.ExpertUID(uid=f"{request['prefix']}.{request['block']}")
    await stub.rpc_info(uid, timeout=request["timeout_s"])
    return {}


_ANSWERS = {"snapshot": _answer_snapshot, "info": _answer_info}
