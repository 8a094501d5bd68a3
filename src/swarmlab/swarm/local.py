"""Processes of a swarm on this machine: the orchestrator's side of the nursery."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import swarmlab
from swarmlab.channel import Listener
from swarmlab.errors import SwarmFailed
from swarmlab.health.gpus import CUDA_ORDER, CUDA_VISIBLE
from swarmlab.health.processes import group_states
from swarmlab.swarm.child import Child
from swarmlab.swarm.ports import HOST, free_ports
from swarmlab.swarm.ready import log_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NURSERY_MODULE = "swarmlab.bridge.nursery"
ANSWER_S = 30.0
LEAVE_S = 10.0


class Nursery:
    """The process that forks all others; see ``swarmlab.bridge.nursery`` for the protocol.

    :param temp_dir: of the swarm; short, since sockets live in it; removed when the nursery ends, however that be
    :param on_exit: called from a thread with each child whose group is gone
    :param address: of this machine, that servers listen on
    :param gpus: that servers share, as ``CUDA_VISIBLE_DEVICES`` names them
    """

    def __init__(
        self,
        temp_dir: Path,
        log_path: Path,
        env: Mapping[str, str],
        on_exit: Callable[[Child], None],
        *,
        address: str = HOST,
        gpus: Sequence[str] = (),
    ) -> None:
        self.log_path, self.temp_dir, self._on_exit = log_path, temp_dir, on_exit
        self.address, self.gpus = address, tuple(gpus)
        self._children: dict[int, Child] = {}
        self._early_exits: dict[int, int] = {}
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._n_requests = 0
        self._lock = threading.Lock()
        self._ready: queue.Queue[dict[str, Any]] = queue.Queue()
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", NURSERY_MODULE, str(temp_dir)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env=_environment({**env, "TMPDIR": str(temp_dir)}),
            )  # fmt: skip
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="nursery", daemon=True)
        self._reader.start()

    def wait_ready(self, deadline_s: float) -> float:
        """Wait until it can fork; return the seconds that its imports took.

        :raises SwarmFailed: with the end of its log
        """
        return self._take(self._ready, deadline_s, "start")["import_s"]

    def spawn(
        self,
        kind: str,
        name: str,
        args: Mapping[str, Any],
        log_path: Path,
        *,
        channel: bool,
        env: Mapping[str, str | None],
        fresh: bool = False,
    ) -> Child:
        """Fork a child.

        :param kind: ``module`` or ``module:function`` in ``swarmlab.bridge``
        :param args: JSON values, given to the function
        :param channel: whether the child gets a channel to talk over
        :param env: None unsets a variable, for a fresh child
        :param fresh: whether it starts Python anew, as one that uses a GPU must
        :raises SwarmFailed: if it cannot be forked
        """
        with self._lock:
            self._n_requests += 1
            listener = Listener(self.temp_dir / f"c{self._n_requests}.sock") if channel else None
        answer = self.request(
            "spawn", kind=kind, name=name, args=dict(args), log=str(log_path), env=dict(env),
            channel=str(listener.path) if listener else "", fresh=fresh,
        )  # fmt: skip
        if not answer["ok"]:
            raise SwarmFailed(f"cannot start {name}: {answer['error']}")
        child = Child(name, answer["pid"], log_path, listener)
        with self._lock:
            self._children[child.pid] = child
            early = self._early_exits.pop(child.pid, None)
        if early is not None:
            self._bury(child, early)
        return child

    def identity(self, path: Path) -> str:
        """Make a key file; return its peer id."""
        answer = self.request("identity", path=str(path))
        if not answer["ok"]:
            raise SwarmFailed(f"cannot make a key at {path}: {answer['error']}")
        return answer["peer_id"]

    def signal(self, name: str, number: int, *, leader_only: bool = False) -> bool:
        """Signal a child's whole group (or its leader alone); False if it is gone already."""
        return self.request("signal_leader" if leader_only else "signal", name=name, signal=int(number))["ok"]

    def free_ports(self, count: int, taken: set[int]) -> list[int]:
        """Ports of its address that nothing listens on."""
        return free_ports(count, taken, self.address)

    def group_states(self, pgid: int) -> dict[int, str]:
        """States of the processes of a group."""
        return group_states(pgid)

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        with self._lock:
            self._n_requests += 1
            number = self._n_requests
            answer = self._answers[number] = queue.Queue()
            line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except OSError:
                answer.put({"event": "end"})
        try:
            return self._take(answer, ANSWER_S, op)
        finally:
            del self._answers[number]

    def stop(self) -> None:
        """End every process of the swarm and the nursery; returns when they are gone."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it died with something of ours unread
            self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its warden ends the rest
            self._process.wait()
        self._reader.join(LEAVE_S)

    def _take(self, source: queue.Queue[dict[str, Any]], deadline_s: float, what: str) -> dict[str, Any]:
        try:
            message = source.get(timeout=deadline_s)
        except queue.Empty:
            message = {"event": "end"}
        if message.get("event") == "end":
            raise SwarmFailed(f"the nursery did not {what}; the end of its log:\n{log_tail(self.log_path)}")
        return message

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._dispatch(json.loads(line))
        end = {"event": "end"}
        self._ready.put(end)
        with self._lock:
            for answer in self._answers.values():
                answer.put(end)
            orphans = list(self._children.values())
        for child in orphans:
            self._bury(child, -9)

    def _dispatch(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "ready":
            self._ready.put(message)
        elif event == "exit":
            with self._lock:
                child = self._children.get(message["pid"])
                if child is None:
                    self._early_exits[message["pid"]] = message["status"]
            if child is not None:
                self._bury(child, message["status"])
        elif (answer := self._answers.get(message["id"])) is not None:
            answer.put(message)

    def _bury(self, child: Child, status: int) -> None:
        with self._lock:
            self._children.pop(child.pid, None)
        child.status = status
        child.gone.set()
        self._on_exit(child)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """For the nursery and, through it, for every child: one thread per process, this very package."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    package_root = str(Path(swarmlab.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    # torch and transformers warn about each other at every import and every block
    quiet = {"PYTHONWARNINGS": "ignore::FutureWarning,ignore::UserWarning"}
    # bitsandbytes initialises CUDA when it is imported, which would start threads and spoil every fork
    blind = {CUDA_VISIBLE: ""}
    return {
        **CUDA_ORDER,
        **os.environ,
        **single,
        **quiet,
        **blind,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        **extra,
    }
