"""A running swarm: its servers come up, are seen, are killed, paused and started again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swarmlab.errors import SwarmFailed
from swarmlab.swarm import bootstrap, places, ready
from swarmlab.swarm.cluster import gpu_variables, starts_fresh
from swarmlab.swarm.server import ServerHandle, server_args
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from swarmlab.swarm.child import Child
    from swarmlab.swarm.cluster import Host
    from swarmlab.swarm.spec import ServerSpec, SwarmSpec
    from swarmlab.types import Span, SwarmView

# called with the name of a process, its new state, and what else there is to say; may come from any thread
OnState = Callable[[str, str, str], None]

INFO_S = 2.0


class Swarm:
    """A running swarm. Made by ``swarmlab.swarm.deploy``; safe to use from several threads.

    :param temp_dir: short, for sockets and keys
    """

    def __init__(self, spec: SwarmSpec, run_dir: Path, temp_dir: Path, on_state: OnState) -> None:
        self.spec = spec
        self.servers: dict[str, ServerHandle] = {}
        self.problems: list[str] = []  # of the DHT's records, at the last snapshot
        self._temp_dir, self._log_dir = temp_dir, run_dir / "logs"
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._on_state = on_state
        self._changed = threading.Event()
        self._places = places.Places(spec.cluster, run_dir, temp_dir, spec.log_level, self._note_exit)
        self._nursery = self._places.here
        self._hosts: list[Host] = []
        self._bootstrap: bootstrap.Bootstrap | None = None

    def start(self) -> None:
        """Bring up the nursery and the bootstrap node, then begin to start all servers at once."""
        self._on_state("nursery", "starting", "importing petals")
        import_s = self._nursery.wait_ready(self.spec.start_deadline_s)
        self._on_state("nursery", "online", f"imports took {import_s:.1f} s")
        self._bootstrap = self._start_bootstrap()
        self._on_state(bootstrap.NAME, "online", self.initial_peers[0])
        self._hosts = self._places.open(self.spec.start_deadline_s, self._on_state)
        for server, (host, gpu) in zip(self.spec.servers, places.dealt(self.spec, self._hosts), strict=True):
            self._add(server, host, gpu)

    def add(self, server: ServerSpec) -> None:
        """Begin to start one more server, on the machine that has the fewest; then :meth:`wait_ready`.

        :param server: with a name of its own
        """
        n_here = {id(host): 0 for host in self._hosts}
        for known in self.servers.values():
            n_here[id(known.host)] += 1
        host = min(self._hosts, key=lambda one: n_here[id(one)])
        self._add(server, host, places.gpus_of(self.spec, host, n_here[id(host)] + 1)[-1])

    def _add(self, server: ServerSpec, host: Host, gpu: dict[str, str | None]) -> None:
        taken = self._fixed_ports() | {known.port for known in self.servers.values()}
        port = server.port or host.free_ports(1, taken)[0]
        identity_path = host.temp_dir / f"{server.name}.id"
        peer_id = host.identity(identity_path)
        handle = ServerHandle(server, peer_id, port, identity_path, self._log_path(server.name), host, gpu)
        self.servers[server.name] = handle
        self._start_server(handle)

    def close(self) -> None:
        """End every process."""
        self._places.close()
        if self._bootstrap is not None:
            self._bootstrap.close()

    @property
    def temp_dir(self) -> Path:
        """Where its processes keep sockets, keys and temporary files."""
        return self._temp_dir

    @property
    def initial_peers(self) -> list[str]:
        """Addresses that a client joins the swarm by."""
        return self._node().maddrs

    def snapshot(self) -> SwarmView:
        """The swarm as its DHT shows it now, asked at the bootstrap node."""
        view, self.problems = self._node().snapshot(self.spec.dht_prefix, self.spec.n_blocks)
        return view

    def answers(self, name: str, timeout_s: float = INFO_S) -> bool:
        """Whether a server itself, asked past the DHT, says that it serves."""
        server = self.servers[name]
        span = server.span
        if span is None:
            record = self.snapshot().get(server.peer_id)
            if record is None:
                return False
            span = record.span
        return self._node().serves(server.peer_id, self.spec.dht_prefix, span.start, timeout_s)

    def group_states(self, name: str, pgid: int) -> dict[int, str]:
        """States of the processes of a group on a server's machine."""
        return self.servers[name].host.group_states(pgid)

    def wait_ready(self, names: Iterable[str] | None = None, deadline_s: float | None = None) -> SwarmView:
        """Wait until servers are announced ONLINE with the blocks they should hold, and themselves answer.

        :param names: of the servers; None waits for all, and for every block to be covered
        :param deadline_s: None takes the spec's ``start_deadline_s``
        :raises SwarmFailed: if one dies or the deadline passes, with the last lines of its log
        """
        waiting = [self.servers[name] for name in (self.servers if names is None else names)]
        limit_s = self.spec.start_deadline_s if deadline_s is None else deadline_s

        def all_ready() -> SwarmView | None:
            self._require_alive(waiting)
            view = self.snapshot()
            waiting[:] = [server for server in waiting if not self._is_ready(server, view)]
            covered = names is not None or not view.uncovered()
            return view if covered and not waiting else None

        try:
            return ready.wait_for(all_ready, limit_s, "servers ready", self._changed)
        except TimeoutError:
            reports = "\n".join(server.report() for server in waiting) or "some blocks are held by nobody"
            raise SwarmFailed(f"not ready within {limit_s:.0f} s:\n{reports}") from None

    def kill(self, name: str) -> bool:
        """SIGKILL a server's whole process group, as a machine that dies; False if it was gone."""
        return self.servers[name].host.signal(name, signal.SIGKILL)

    def stop(self, name: str) -> bool:
        """SIGSTOP the whole group, as a machine that hangs; False if it was gone."""
        return self._signal(name, signal.SIGSTOP, "stopped")

    def cont(self, name: str) -> bool:
        """SIGCONT the whole group; False if it was gone."""
        return self._signal(name, signal.SIGCONT, "online")

    def leave(self, name: str) -> bool:
        """SIGTERM to the server's main process: it announces that it is OFFLINE and ends; False if it was gone."""
        return self.servers[name].host.signal(name, signal.SIGTERM, leader_only=True)

    def restart(self, name: str, deadline_s: float = 10.0) -> None:
        """Start a dead server again with the same peer id, port and blocks; then :meth:`wait_ready`.

        :param deadline_s: for what is left of its old processes to go, in seconds
        :raises SwarmFailed: if it still runs
        """
        server = self.servers[name]
        if server.child is not None and server.child.wait(deadline_s) is None:
            raise SwarmFailed(f"server {name} cannot be restarted: it still runs")
        self._start_server(server)

    def hold(self, name: str, span: Span) -> Span:
        """Have a server hold other blocks from its next start on; returns those it held before.

        :raises SwarmFailed: if petals chooses its blocks
        """
        server = self.servers[name]
        if server.span is None:
            raise SwarmFailed(f"server {name} chooses its blocks itself")
        before, server.spec = server.span, replace(server.spec, span=span)
        return before

    def spawn(
        self,
        kind: str,
        name: str,
        args: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
        *,
        on_gpu: bool = False,
    ) -> Child:
        """Fork another process with a channel, such as a client.

        :param kind: ``module`` or ``module:function`` in ``swarmlab.bridge``; called with ``args`` and the path of
            the channel
        :param name: unlike that of any living process of the swarm; also of its log file
        :param on_gpu: it sees a GPU of this machine, if there is one, and therefore starts Python anew
        """
        seen = gpu_variables(self._nursery.gpus, 1, "in_turn", inherit=True)[0] if on_gpu else {}
        return self._nursery.spawn(
            kind, name, args, self._log_path(name), channel=True, env={**seen, **(env or {})}, fresh=on_gpu
        )

    def kill_child(self, child: Child) -> bool:
        """SIGKILL the group of a process made by :meth:`spawn`; False if it was gone."""
        return not child.gone.is_set() and self._nursery.signal(child.name, signal.SIGKILL)

    def _node(self) -> bootstrap.Bootstrap:
        if self._bootstrap is None:
            raise SwarmFailed("the swarm has no bootstrap node yet")
        return self._bootstrap

    def _start_bootstrap(self) -> bootstrap.Bootstrap:
        port = self._nursery.free_ports(1, self._fixed_ports())[0]
        self._on_state(bootstrap.NAME, "starting", f"port {port}")
        return bootstrap.Bootstrap(
            self._nursery, port, self._temp_dir, self._log_path(bootstrap.NAME), self.spec.start_deadline_s
        )

    def _fixed_ports(self) -> set[int]:
        return {server.port for server in self.spec.servers if server.port is not None}

    def _log_path(self, name: str) -> Path:
        return self._log_dir / f"{name}.log"

    def _start_server(self, server: ServerHandle) -> None:
        own = server.spec
        args = server_args(self.spec, server, self.initial_peers)
        fresh = starts_fresh(self.spec.cluster, self.spec.device)
        child = server.host.spawn(
            own.kind,
            own.name,
            args,
            server.log_path,
            channel=False,
            env=server.gpu if fresh else {},
            fresh=fresh,
        )
        server.child = child
        self._set_state(server, "starting", f"pid {child.pid}, blocks {server.span or 'of its choice'}")
        if child.gone.is_set():  # it was faster
            self._note_exit(child)

    def _is_ready(self, server: ServerHandle, view: SwarmView) -> bool:
        state = ready.state_of(view, server.peer_id, server.span)
        if state is ServerState.JOINING:
            self._set_state(server, "joining", "loading blocks")
        if state is not ServerState.ONLINE or not self.answers(server.name):
            return False
        record = view.get(server.peer_id)
        self._set_state(server, "online", f"blocks {record.span}" if record else "")
        return True

    def _require_alive(self, servers: Iterable[ServerHandle]) -> None:
        for server in servers:
            if not server.alive:
                raise SwarmFailed(server.report())

    def _signal(self, name: str, number: int, state: str) -> bool:
        done = self.servers[name].host.signal(name, number)
        if done:
            self._set_state(self.servers[name], state, signal.Signals(number).name)
        return done

    def _note_exit(self, child: Child) -> None:
        server = self.servers.get(child.name)
        if server is not None and server.child in (child, None):
            self._set_state(server, "dead", f"status {child.status}")
        self._changed.set()

    def _set_state(self, server: ServerHandle, state: str, detail: str) -> None:
        if server.state != state:
            server.state = state
            self._on_state(server.name, state, detail)
