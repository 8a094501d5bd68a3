"""Lets the unmodified petals 2.2.0.post1 run on hivemind 1.1.12: call :func:`apply` before importing petals."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Names that petals imports from the top of hivemind, and the module of hivemind 1.1.12 that has them.
MOVED_NAMES = {
    "BatchTensorDescriptor": "hivemind.utils.tensor_descr",
    "TensorDescriptor": "hivemind.utils.tensor_descr",
    "MSGPackSerializer": "hivemind.utils",
    "TimedStorage": "hivemind.utils",
    "MAX_DHT_TIME_DISCREPANCY_SECONDS": "hivemind.utils",
    "get_dht_time": "hivemind.utils",
    "get_logger": "hivemind.utils",
    "anext": "hivemind.utils.asyncio",
    "nested_compare": "hivemind.utils.nested",
    "nested_flatten": "hivemind.utils.nested",
    "nested_pack": "hivemind.utils.nested",
    "P2P": "hivemind.p2p",
    "P2PContext": "hivemind.p2p",
    "PeerID": "hivemind.p2p",
    "serialize_torch_tensor": "hivemind.compression",
    "deserialize_torch_tensor": "hivemind.compression",
    "deserialize_tensor_stream": "hivemind.compression",
}

# A private swarm has no NAT to cross and no relay to look for. hivemind's defaults do both, and neither petals'
# command line nor its client can say otherwise.
PRIVATE_NETWORK = {"auto_nat": False, "nat_port_map": False, "use_relay": False}


def apply() -> None:
    """Give hivemind its old top-level names back and keep every library off the network. Idempotent.

    :raises ImportError: if hivemind has none of a name that petals needs, naming it
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    os.environ.setdefault("BITSANDBYTES_NOWELCOME", "1")
    import hivemind

    for name, home in MOVED_NAMES.items():
        if hasattr(hivemind, name):
            continue
        try:
            setattr(hivemind, name, getattr(importlib.import_module(home), name))
        except AttributeError:
            version = hivemind.__version__
            raise ImportError(f"hivemind {version} has no {name} in {home}; petals needs it") from None
    hivemind.P2P.create.__func__.__kwdefaults__.update(PRIVATE_NETWORK)
    _switch_off_version_check()


def _switch_off_version_check() -> None:
    # petals asks the package index for newer versions at server start. petals.cli.run_server imports the function
    # by name, so it must be replaced before that module is imported.
    version: Any = importlib.import_module("petals.utils.version")
    version.validate_version = lambda: None


def after_fork(temp_dir: Path) -> None:
    """Cut what a child forked after the imports would share with its siblings through hivemind.

    :param temp_dir: for the child's p2p sockets; hivemind has them in the system's folder, where those of killed
        processes pile up
    """
    p2p: Any = importlib.import_module("hivemind.p2p")
    contexts: Any = importlib.import_module("hivemind.utils.asyncio")
    futures: Any = importlib.import_module("hivemind.utils.mpfuture")
    # These locks live in shared memory since the import; a sibling killed while it holds one would block us.
    futures.MPFuture.reset_backend()
    contexts._AsyncContextWrapper.EXECUTOR_LOCK = multiprocessing.Lock()
    p2p.P2P._UNIX_SOCKET_PREFIX = f"/unix{temp_dir}/"
