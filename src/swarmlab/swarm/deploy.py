"""``with deploy(spec, run_dir) as swarm``: a real swarm on this machine, torn down whatever happens."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from swarmlab.channel import ChannelClosed
from swarmlab.errors import SwarmFailed
from swarmlab.swarm import ready
from swarmlab.swarm.local import Child, Nursery, free_ports
from swarmlab.swarm.spec import HOST, ServerSpec, SwarmSpec, validate
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

# called with a server's (or other process's) name, its state, and what else there is to say
OnState = Callable[[str, str, str], None]

BOOTSTRAP = "bootstrap"
SNAPSHOT_S = 20.0
INFO_S = 2.0


@dataclass
class ServerHandle:
    """A server as the orchestrator knows it.

    :param state: starting, joining, online, stopped or dead
    """

    spec: ServerSpec
    peer_id: str
    port: int
    identity_path: Path
    log_path: Path
    child: Child | None = None
    state: str = "dead"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def span(self) -> Span | None:
        return self.spec.span

    @property
    def pid(self) -> int:
        if self.child is None:
            raise SwarmFailed(f"{self.name} has not been started")
        return self.child.pid

    pgid = pid


class Swarm:
    """A running swarm. Made by :func:`deploy`; safe to use from several threads."""

    def __init__(self, spec: SwarmSpec, run_dir: Path, temp_dir: Path, on_state: OnState | None) -> None:
        self.spec = spec
        self.servers: dict[str, ServerHandle] = {}
        self.initial_peers: list[str] = []
        self.problems: list[str] = []
        self._temp_dir, self._log_dir = temp_dir, run_dir / "logs"
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._on_state = on_state or (lambda name, state, detail: None)
        self._changed = threading.Event()
        self._ask_lock = threading.Lock()
        self._n_asked = 0
        env = {"HIVEMIND_LOGLEVEL": spec.log_level, "HIVEMIND_COLORS": "0"}
        self._nursery = Nursery(temp_dir, self._log_dir / "nursery.log", env, self._note_exit)
        self._bootstrap: Child | None = None

    # -- start and stop of the whole ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring up the nursery and the bootstrap node, and begin to start all servers."""
        self._on_state("nursery", "starting", "importing petals")
        import_s = self._nursery.wait_ready(self.spec.start_deadline_s)
        self._on_state("nursery", "online", f"imports took {import_s:.1f} s")
        fixed = {server.port for server in self.spec.servers if server.port is not None}
        port, *ports = free_ports(1 + len(self.spec.servers), fixed)
        self._start_bootstrap(port)
        for server, free_port in zip(self.spec.servers, ports, strict=True):
            identity_path = self._temp_dir / f"{server.name}.id"
            self.servers[server.name] = ServerHandle(
                server, self._nursery.identity(identity_path), server.port or free_port, identity_path,
                self._log_dir / f"{server.name}.log",
            )  # fmt: skip
            self._start_server(self.servers[server.name])

    def close(self) -> None:
        """End every process; idempotent."""
        self._nursery.stop()
        if self._bootstrap is not None:
            self._bootstrap.close()

    def _start_bootstrap(self, port: int) -> None:
        identity_path = self._temp_dir / f"{BOOTSTRAP}.id"
        self._nursery.identity(identity_path)
        args = {"maddr": f"/ip4/{HOST}/tcp/{port}", "identity_path": str(identity_path)}
        self._on_state(BOOTSTRAP, "starting", f"port {port}")
        log_path = self._log_dir / f"{BOOTSTRAP}.log"
        child = self._nursery.spawn("children:bootstrap", BOOTSTRAP, args, log_path, channel=True, env={})
        self._bootstrap = child
        try:
            hello = child.channel(self.spec.start_deadline_s).recv(self.spec.start_deadline_s)
        except (ChannelClosed, TimeoutError) as error:
            raise SwarmFailed(f"the bootstrap node did not start ({error}); the end of its log:\n{ready.log_tail(log_path)}") from None
        self.initial_peers = hello["maddrs"]
        self._on_state(BOOTSTRAP, "online", self.initial_peers[0])

    def _start_server(self, server: ServerHandle) -> None:
        args = {"argv": self._argv(server)}
        server.child = self._nursery.spawn("children:server", server.name, args, server.log_path, channel=False, env={})
        self._set_state(server, "starting", f"pid {server.pid}, blocks {server.span or 'of its choice'}")

    def _argv(self, server: ServerHandle) -> list[str]:
        """Arguments of ``petals.cli.run_server``; nothing in them measures or asks anything outside the swarm."""
        spec, own = self.spec, server.spec
        held = ["--block_indices", str(own.span)] if own.span else ["--num_blocks", str(own.n_blocks)]
        options = {
            "--dht_prefix": spec.dht_prefix,
            "--host_maddrs": f"/ip4/{HOST}/tcp/{server.port}",
            "--announce_maddrs": f"/ip4/{HOST}/tcp/{server.port}",
            "--identity_path": server.identity_path,
            "--throughput": float(own.throughput_tps),
            "--num_handlers": spec.num_handlers,
            "--attn_cache_tokens": spec.attn_cache_tokens,
            "--torch_dtype": spec.torch_dtype,
            "--device": spec.device,
            "--update_period": spec.update_period_s,
            "--expiration": spec.expiration_s,
        }
        pairs = [str(item) for pair in options.items() for item in pair]
        peers = ["--initial_peers", *self.initial_peers]
        return [str(spec.model_path), *held, *pairs, *peers, "--skip_reachability_check", *spec.argv, *own.argv]

    # -- what the swarm is ---------------------------------------------------------------------------------------------

    def snapshot(self) -> SwarmView:
        """The swarm as its DHT shows it now, asked at the bootstrap node."""
        answer = self._ask(op="snapshot", prefix=self.spec.dht_prefix, n_blocks=self.spec.n_blocks)
        if not answer["ok"]:
            raise SwarmFailed(f"the DHT could not be read: {answer['error']}")
        self.problems = answer["problems"]
        return _view_from_json(answer["view"])

    def answers(self, name: str, timeout_s: float = INFO_S) -> bool:
        """Whether a server itself says that it serves, asked past the DHT."""
        server = self.servers[name]
        block = server.span.start if server.span else self._announced_start(server)
        if block is None:
            return False
        return self._ask(
            op="info", peer_id=server.peer_id, prefix=self.spec.dht_prefix, block=block, timeout_s=timeout_s
        )["ok"]

    def _announced_start(self, server: ServerHandle) -> int | None:
        record = self.snapshot().get(server.peer_id)
        return record.span.start if record else None

    def wait_ready(self, names: Iterable[str] | None = None, deadline_s: float | None = None) -> SwarmView:
        """Wait until servers are announced ONLINE with the blocks they should hold, and themselves answer.

        :param names: of the servers; None waits for all, and for every block to be covered
        :raises SwarmFailed: if one dies or the deadline passes, with the last lines of its log
        """
        wanted = [self.servers[name] for name in (self.servers if names is None else names)]
        waiting = {server.name for server in wanted}

        def all_ready() -> SwarmView | None:
            view = self.snapshot()
            for server in wanted:
                if server.child is None or server.child.gone.is_set():
                    raise SwarmFailed(self._failure(server))
                if server.name in waiting and self._check(server, view):
                    waiting.discard(server.name)
            covered = names is not None or not view.uncovered()
            return view if covered and not waiting else None

        limit_s = self.spec.start_deadline_s if deadline_s is None else deadline_s
        try:
            return ready.wait_for(all_ready, limit_s, "servers ready", self._changed)
        except TimeoutError:
            late = [self.servers[name] for name in sorted(waiting)] or wanted
            reasons = "\n".join(self._failure(server) for server in late)
            raise SwarmFailed(f"not ready within {limit_s:.0f} s:\n{reasons}") from None

    def _check(self, server: ServerHandle, view: SwarmView) -> bool:
        state = ready.state_of(view, server.peer_id, server.span)
        if state is ServerState.JOINING:
            self._set_state(server, "joining", f"loading blocks {server.span or ''}")
        if state is not ServerState.ONLINE or not self.answers(server.name):
            return False
        record = view.get(server.peer_id)
        self._set_state(server, "online", f"blocks {record.span}" if record else "")
        return True

    def _failure(self, server: ServerHandle) -> str:
        status = server.child.status if server.child else None
        how = f"ended with status {status}" if status is not None else f"is still {server.state}"
        return f"server {server.name} {how}; the end of {server.log_path}:\n{ready.log_tail(server.log_path)}"

    # -- what can be done to it ----------------------------------------------------------------------------------------

    def kill(self, name: str) -> bool:
        """SIGKILL a server's whole process group, as a machine that dies; False if it was gone."""
        return self._nursery.signal(name, signal.SIGKILL)

    def stop(self, name: str) -> bool:
        """SIGSTOP the whole group, as a machine that hangs."""
        done = self._nursery.signal(name, signal.SIGSTOP)
        if done:
            self._set_state(self.servers[name], "stopped", "")
        return done

    def cont(self, name: str) -> bool:
        """SIGCONT the whole group."""
        done = self._nursery.signal(name, signal.SIGCONT)
        if done:
            self._set_state(self.servers[name], "online", "continued")
        return done

    def leave(self, name: str) -> bool:
        """SIGTERM to the server's main process: it announces that it is OFFLINE and ends."""
        return self._nursery.signal(name, signal.SIGTERM, leader_only=True)

    def restart(self, name: str, deadline_s: float = 10.0) -> None:
        """Start a dead server again: same peer id, port and blocks. Wait with :meth:`wait_ready`.

        :param deadline_s: for what is left of its old processes to go, in seconds
        """
        server = self.servers[name]
        if server.child is not None and server.child.wait(deadline_s) is None:
            raise SwarmFailed(f"server {name} cannot be restarted: it still runs")
        self._start_server(server)

    def spawn(self, kind: str, name: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Child:
        """Fork another process with a channel, such as a client.

        :param kind: ``module`` or ``module:function`` in ``swarmlab.bridge``, called with ``args`` and the channel's
            path
        :param name: also of its log file
        """
        log_path = self._log_dir / f"{name}.log"
        return self._nursery.spawn(kind, name, args, log_path, channel=True, env=env or {})

    def kill_child(self, child: Child) -> bool:
        """SIGKILL the group of a process made by :meth:`spawn`; False if it was gone."""
        return not child.gone.is_set() and self._nursery.signal(child.name, signal.SIGKILL)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _ask(self, **request: Any) -> dict[str, Any]:
        if self._bootstrap is None:
            raise SwarmFailed("the swarm has not been started")
        with self._ask_lock:
            self._n_asked += 1
            channel = self._bootstrap.channel()
            try:
                channel.send({"id": self._n_asked, **request})
                while (answer := channel.recv(SNAPSHOT_S))["id"] != self._n_asked:
                    pass  # the answer to a question that was given up
                return answer
            except (ChannelClosed, TimeoutError) as error:
                log = ready.log_tail(self._bootstrap.log_path)
                raise SwarmFailed(f"the bootstrap node does not answer ({error}); the end of its log:\n{log}") from None

    def _note_exit(self, child: Child) -> None:
        server = self.servers.get(child.name)
        if server is not None and server.child in (child, None):
            self._set_state(server, "dead", f"status {child.status}")
        self._changed.set()

    def _set_state(self, server: ServerHandle, state: str, detail: str) -> None:
        if server.state != state:
            server.state = state
            self._on_state(server.name, state, detail)


@contextmanager
def deploy(
    spec: SwarmSpec, run_dir: Path, *, on_state: OnState | None = None, wait: bool = True, whole: bool = True
) -> Iterator[Swarm]:
    """Start a swarm and tear it down at the end of the block: normal end, exception, Ctrl-C or SIGTERM.

    If the orchestrator itself is killed, the processes notice and leave.

    :param run_dir: logs go to its folder ``logs``
    :param on_state: told of every change of a process's state; may be called from a thread
    :param wait: return only when all servers are ready
    :param whole: refuse a spec that leaves blocks unheld
    :raises BadInput: before anything is started
    :raises SwarmFailed: if a process does not start; the last lines of its log are in the message
    """
    validate(spec, whole=whole)
    with ExitStack() as stack:
        stack.enter_context(_sigterm_raises())
        temp_dir = Path(tempfile.mkdtemp(prefix="swarmlab-"))
        stack.callback(shutil.rmtree, temp_dir, ignore_errors=True)
        swarm = Swarm(spec, run_dir, temp_dir, on_state)
        stack.callback(swarm.close)
        swarm.start()
        if wait:
            swarm.wait_ready()
        yield swarm


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM unwinds the stack like Ctrl-C does, so that the swarm is torn down (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _view_from_json(data: Mapping[str, Any]) -> SwarmView:
    records = (
        ServerRecord(**{**server, "span": Span(*server["span"]), "state": ServerState(server["state"])})
        for server in data["servers"]
    )
    return SwarmView(data["n_blocks"], tuple(records), data["seen_at_s"])
