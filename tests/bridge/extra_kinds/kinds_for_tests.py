"""Kinds of children that only the tests of the nursery ask for."""

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from swarmlab.channel import connect


def describe(args: dict[str, Any], channel_path: str) -> int:
    """Say what the child finds itself in, then end as told."""
    from hivemind.p2p import P2P

    print("this goes to the log")
    print("so does this", file=sys.stderr)
    connect(channel_path).send(
        {
            "pid": os.getpid(), "pgid": os.getpgid(0), "sid": os.getsid(0), "cwd": str(Path.cwd()),
            "temp_dir": tempfile.gettempdir(), "socket_prefix": P2P._UNIX_SOCKET_PREFIX,
            "env": os.environ.get("GIVEN"), "n_threads": threading.active_count(), "args": args,
            "fds": sorted(str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3)),
        }
    )  # fmt: skip
    return args["status"]


def leave_helper(args: dict[str, Any], channel_path: str) -> int:
    """End although a helper in the same group, deaf to SIGTERM, goes on."""
    channel = connect(channel_path)
    helper = os.fork()
    if helper == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()
    channel.send({"helper": helper})
    return args["status"]


def wait(_args: dict[str, Any], channel_path: str) -> None:
    """Report, then wait for a signal."""
    connect(channel_path).send({"waiting": True})
    while True:  # not signal.pause(): a signal that comes just before it would be waited for for ever
        time.sleep(0.02)


def leave_sockets(args: dict[str, Any], channel_path: str) -> None:
    """Make sockets where hivemind and multiprocessing make theirs, then wait for a signal."""
    made = []
    for name in args["names"]:
        path = Path(tempfile.gettempdir()) / name
        path.parent.mkdir(exist_ok=True)
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].bind(str(path))
    connect(channel_path).send({"temp_dir": tempfile.gettempdir()})
    signal.pause()


def chatter(args: dict[str, Any], channel_path: str) -> None:
    """Answer each message with its number until told to stop."""
    channel = connect(channel_path)
    while (message := channel.recv(30))["number"] < args["until"]:
        channel.send({"number": message["number"]})


def generate(args: dict[str, Any], channel_path: str) -> None:
    """A whole client: load the model, generate, say what came out."""
    import torch
    from petals import AutoDistributedModelForCausalLM

    channel = connect(channel_path)
    channel.send({"started": True})
    model = AutoDistributedModelForCausalLM.from_pretrained(
        args["model_path"], initial_peers=args["initial_peers"], dht_prefix=args["dht_prefix"]
    )
    channel.send({"loaded": True})
    with torch.inference_mode():
        tokens = model.generate(torch.tensor([[1, 2, 3, 4]]), max_new_tokens=3, do_sample=False)
    channel.send({"tokens": tokens.tolist()})


def tell(args: dict[str, Any], _channel_path: str) -> int:
    """Write lines of events and a word into the log, then end as told."""
    path = Path(args["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f'{{"kind": "logs", "mono_s": 1.0, "line": "{line}"}}\n' for line in args["lines"])
    )
    print("the teller says so", f"leader={os.getsid(0)}", flush=True)
    if name := args.get("variable"):
        print(f"{name}={os.environ.get(name)}")
    return args["status"]


def sleep(_args: dict[str, Any], _channel_path: str) -> None:
    """Wait for a signal."""
    while True:
        time.sleep(0.02)
