"""A server as the orchestrator knows it, and the command line it is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.ready import log_tail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from swarmlab.swarm.child import Child
    from swarmlab.swarm.cluster import Host
    from swarmlab.swarm.spec import ServerSpec, SwarmSpec
    from swarmlab.types import Span


@dataclass
class ServerHandle:
    """One server of a running swarm.

    :param peer_id: known before the server starts, and the same after every restart; so is the port
    :param identity_path: of its key, on its host
    :param log_path: of its log, here
    :param host: the machine it runs on
    :param gpu: variables by which it sees its own GPU only
    :param child: its processes; None before the first start
    :param state: starting, joining, online, stopped or dead
    """

    spec: ServerSpec
    peer_id: str
    port: int
    identity_path: Path
    log_path: Path
    host: Host
    gpu: dict[str, str | None]
    child: Child | None = None
    state: str = "dead"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def span(self) -> Span | None:
        """The blocks it should hold; None if petals chooses them."""
        return self.spec.span

    @property
    def pid(self) -> int:
        if self.child is None:
            raise SwarmFailed(f"{self.name} has not been started")
        return self.child.pid

    @property
    def pgid(self) -> int:
        return self.pid

    @property
    def alive(self) -> bool:
        return self.child is not None and not self.child.gone.is_set()

    def report(self) -> str:
        """How it stands, with the end of its log, for an error message."""
        status = self.child.status if self.child else None
        how = f"ended with status {status}" if status is not None else f"is still {self.state}"
        return f"server {self.name} {how}; the end of {self.log_path}:\n{log_tail(self.log_path)}"


def server_args(spec: SwarmSpec, server: ServerHandle, initial_peers: Sequence[str]) -> dict[str, Any]:
    """All that a server's process is told; see ``swarmlab.bridge.children`` and the server's own kind."""
    measures = {"rate_mbps": spec.network.rate_mbps} if spec.throughput == "measured" else None
    return {
        "argv": server_argv(spec, server, initial_peers),
        "name": server.name,
        "network": spec.network.server_options(),
        "measures": measures,
        "store_dir": spec.store_dir,
        "store_max_bytes": spec.store_max_bytes,
        **dict(server.spec.options),
    }


def server_argv(spec: SwarmSpec, server: ServerHandle, initial_peers: Sequence[str]) -> list[str]:
    """Arguments of ``petals.cli.run_server``; with them nobody outside the swarm is asked."""
    own, maddr = server.spec, _maddr(server.host.address, server.port)
    public = [] if spec.cluster.public_ip is None else [_maddr(spec.cluster.public_ip, server.port)]
    held = ["--block_indices", str(own.span)] if own.span else ["--num_blocks", str(own.n_blocks)]
    options = {
        "--dht_prefix": spec.dht_prefix,
        "--host_maddrs": maddr,
        "--identity_path": server.identity_path,
        # "auto" would take what another server left in its cache folder, perhaps of another time and load
        "--throughput": "eval" if spec.throughput == "measured" else float(own.throughput_tps),
        "--num_handlers": spec.num_handlers,
        "--attn_cache_tokens": spec.attn_cache_tokens,
        "--torch_dtype": spec.torch_dtype,
        "--quant_type": spec.quant,
        "--device": spec.device,
        "--update_period": spec.update_period_s,
        "--expiration": spec.expiration_s,
    }
    if spec.throughput == "measured":
        # petals keeps there what it measured, and a lock by which servers of one machine measure one after the other
        options["--cache_dir"] = server.host.temp_dir
    pairs = [str(item) for pair in options.items() for item in pair]
    peers = ["--initial_peers", *initial_peers, "--skip_reachability_check"]
    # libp2p tries both; from here the first one answers, a router seldom leads back inside
    announced = ["--announce_maddrs", maddr, *public]
    return [str(spec.model_path), *held, *pairs, *announced, *peers, *spec.argv, *own.argv]


def _maddr(address: str, port: int) -> str:
    return f"/ip4/{address}/tcp/{port}"
