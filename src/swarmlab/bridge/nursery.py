"""Imports petals once and forks every other process of a swarm from that: seconds saved for each of them.

``python -m swarmlab.bridge.nursery TEMP_DIR`` speaks JSON lines on stdin and stdout. Requests carry an ``id`` that
the answer repeats:

- ``{"op": "spawn", "kind", "name", "args", "log", "env", "channel", "fresh"}`` -> ``{"ok": true, "pid", "pgid"}``.
  ``kind`` is ``module`` or ``module:function`` inside ``swarmlab.bridge`` (function ``main`` if left out), called in
  the child as ``function(args, channel) -> exit status``. With ``fresh`` the child starts Python anew, as a process
  that uses a GPU must (``swarmlab.bridge.fresh``).
- ``{"op": "signal", "name", "signal"}`` -> ``{"ok": bool}``: to the whole group; false if it is gone.
- ``{"op": "signal_leader", ...}``: the same to the group's leader alone.
- ``{"op": "identity", "path"}`` -> ``{"ok": true, "peer_id"}``: makes the key file, if it is not there.

Events have no id: ``{"event": "ready", "import_s"}`` once, and ``{"event": "exit", "name", "pid", "status"}`` when
a child has died *and* nothing of its process group is left (status as in ``os.waitstatus_to_exitcode``). The end
of stdin ends everything; the warden sees to it if the nursery itself is killed.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from swarmlab.bridge import compat, fresh
from swarmlab.bridge.inference import warden

SWEEP_S = 0.2
LEAVE_S = 5.0
MAX_ERROR_CHARACTERS = 500  # an answer must fit into what a pipe takes at once
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Group:
    """A child, leader of its own session and process group.

    :param temp_dir: its own folder for temporary files
    :param status: exit status of the leader; None while it lives
    """

    name: str
    pgid: int
    temp_dir: Path
    status: int | None = None


class Nursery:
    """The state of the process; it has one thread, since a fork would leave locks of other threads locked for ever."""

    def __init__(self, requests_fd: int, answers_fd: int, temp_dir: Path) -> None:
        self._warden_pid, self._warden_fd = warden.start(temp_dir)
        self._requests_fd, self._answers_fd = requests_fd, answers_fd
        self._temp_dir = temp_dir
        self._children: Any = None  # the module, once petals has been imported
        self._private_fds: tuple[int, ...] = (requests_fd, answers_fd, self._warden_fd)
        self._groups: dict[int, Group] = {}
        self._n_spawned = 0
        self._pending = b""

    def prepare(self) -> None:
        """Import petals and all else that children need."""
        started = time.monotonic()
        compat.apply()
        self._children = importlib.import_module("swarmlab.bridge.children")
        self._children.prepare()
        self.tell({"event": "ready", "import_s": round(time.monotonic() - started, 3)})

    def serve(self) -> None:
        """Answer requests and report exits until stdin ends or the parent is gone."""
        wake_fd, signal_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signal_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        parent = os.getppid()
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests_fd, selectors.EVENT_READ)
            selector.register(wake_fd, selectors.EVENT_READ)
            self._private_fds += (wake_fd, signal_fd, selector.fileno())
            while os.getppid() == parent:
                ready = {key.fd for key, _ in selector.select(SWEEP_S)}
                if wake_fd in ready:
                    os.read(wake_fd, 1 << 10)
                self._reap()
                if self._requests_fd in ready and not self._read_requests():
                    return

    def end(self) -> None:
        """Kill every group, wait for what outlives it for a moment, and let the warden remove the files.

        torch's shared-memory managers live in sessions of their own; they remove what their dead clients left in
        shared memory and end by themselves, but complain if their folders are gone before.
        """
        until = time.monotonic() + LEAVE_S
        while self._groups and time.monotonic() < until:
            for group in self._groups.values():
                _killpg(group.pgid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)
        while self._others() and time.monotonic() < until:
            self._reap()
            time.sleep(0.01)
        os.close(self._warden_fd)
        os.waitpid(self._warden_pid, 0)

    def tell(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the orchestrator is gone; the end of stdin says so too
            os.write(self._answers_fd, json.dumps(message).encode() + b"\n")

    def _read_requests(self) -> bool:
        data = os.read(self._requests_fd, 1 << 16)
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            try:
                answer = getattr(self, f"_op_{request['op']}")(request)
            except Exception as error:  # noqa: BLE001  one bad request must not end all other processes
                answer = {"ok": False, "error": f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]}
            self.tell({"id": request["id"], **answer})
        return bool(data)

    def _op_spawn(self, request: dict[str, Any]) -> dict[str, Any]:
        if (n_threads := _count_threads()) != 1:
            raise RuntimeError(f"the nursery has {n_threads} threads; forking it would not be safe")
        self._n_spawned += 1
        temp_dir = self._temp_dir / str(self._n_spawned)
        temp_dir.mkdir()
        pid = os.fork()
        if pid == 0:
            self._become(request, temp_dir)
        self._groups[pid] = Group(request["name"], pid, temp_dir)
        return {"ok": True, "pid": pid, "pgid": pid}

    def _become(self, request: dict[str, Any], temp_dir: Path) -> None:
        """The child's first steps; never returns."""
        status = 1
        try:
            os.setsid()
            os.write(self._warden_fd, b"+%d\n" % os.getpid())
            signal.set_wakeup_fd(-1)
            for fd in self._private_fds:
                os.close(fd)
            if request.get("fresh"):
                fresh.become(request, temp_dir)
            status = self._children.run(request, temp_dir)
        finally:
            os._exit(status)

    def _op_signal(self, request: dict[str, Any]) -> dict[str, Any]:
        group = self._find(request["name"])
        return {"ok": group is not None and _killpg(group.pgid, request["signal"])}

    def _op_signal_leader(self, request: dict[str, Any]) -> dict[str, Any]:
        group = self._find(request["name"])
        if group is None or group.status is not None:
            return {"ok": False}
        os.kill(group.pgid, request["signal"])
        return {"ok": True}

    def _op_identity(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, "peer_id": self._children.identity(request["path"])}

    def _find(self, name: str) -> Group | None:
        return next((group for group in self._groups.values() if group.name == name), None)

    def _others(self) -> bool:
        """Whether there are children, own or adopted, beside the warden."""
        return any(child.pid != self._warden_pid for child in psutil.Process().children())

    def _reap(self) -> None:
        """Collect the dead; a group whose leader died is killed until nothing of it is left, then reported."""
        while (dead := _wait_any()) is not None and dead[0]:
            if dead[0] in self._groups:
                self._groups[dead[0]].status = os.waitstatus_to_exitcode(dead[1])
        for group in [group for group in self._groups.values() if group.status is not None]:
            if not _killpg(group.pgid, signal.SIGKILL):
                self._forget(group)

    def _forget(self, group: Group) -> None:
        del self._groups[group.pgid]
        _remove_sockets(group.temp_dir)
        os.write(self._warden_fd, b"-%d\n" % group.pgid)
        self.tell({"event": "exit", "name": group.name, "pid": group.pgid, "status": group.status})


def _count_threads() -> int:
    """Threads of this process as the system counts them, those of C libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))


def _wait_any() -> tuple[int, int] | None:
    """Like ``os.waitpid``: pid 0 if nobody has died, None if there is no child."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None


def _killpg(pgid: int, number: int) -> bool:
    """Signal a group; False if it has no process any more."""
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        return False
    return True


def _remove_sockets(temp_dir: Path) -> None:
    """Those of processes that were killed and could not do it themselves; torch's managers remove their own."""
    for folder, _, names in os.walk(temp_dir):
        for path in (Path(folder) / name for name in names):
            if path.is_socket() and not path.parent.name.startswith("torch-shm-dir"):
                path.unlink(missing_ok=True)


def _adopt_orphans() -> None:
    # Helpers of a dead server become children of the nursery, not of the machine's init: it can then reap them
    # and know that they are gone. Linux only; elsewhere init does it.
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Process entry: fork the warden, import petals, serve."""
    temp_dir = Path(sys.argv[1])
    # Keep the two pipes for the protocol; whatever any library prints goes to stderr, the nursery's log.
    requests_fd, answers_fd = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nursery = Nursery(requests_fd, answers_fd, temp_dir)
    _adopt_orphans()
    try:
        nursery.prepare()
        nursery.serve()
    finally:
        nursery.end()


if __name__ == "__main__":
    main()
