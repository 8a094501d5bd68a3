"""What a swarm should look like, checked before anything starts."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from swarmlab.errors import BadInput
from swarmlab.health.gpus import CUDA_VISIBLE, visible_gpus
from swarmlab.swarm.cluster import ClusterSettings, starts_fresh
from swarmlab.swarm.network import NetworkSettings
from swarmlab.swarm.ports import is_free
from swarmlab.types import MAX_THROUGHPUT_TPS, Span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

THROUGHPUTS = ("given", "measured")
MAX_HANDLERS = 64  # petals' own default is 8

# Measured for servers forked from one nursery: memory of their own, without weights and attention caches.
SERVER_BYTES = 250 * 2**20
# The same for a server with a Python of its own: nothing that was imported is shared. With a GPU, its context, too.
FRESH_SERVER_BYTES = 1200 * 2**20
# The nursery with petals imported, and the bootstrap node.
BASE_BYTES = 600 * 2**20


@dataclass(frozen=True)
class ServerSpec:
    """One server.

    :param span: the blocks it holds; None lets petals choose ``n_blocks`` of them
    :param n_blocks: how many blocks to choose; only without ``span``
    :param throughput_tps: what it announces, tokens/s through each block, unless the swarm's servers measure it
    :param port: TCP port; None takes a free one, kept over restarts
    :param argv: more arguments of ``petals.cli.run_server``; of two equal ones the later counts
    :param kind: the function in ``swarmlab.bridge`` that its process runs
    :param options: names and values of what that function takes beside ``argv``
    """

    name: str
    span: Span | None = None
    n_blocks: int | None = None
    throughput_tps: float = 100.0
    port: int | None = None
    argv: tuple[str, ...] = ()
    kind: str = "children:server"
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SwarmSpec:
    """A whole swarm.

    :param model_path: absolute path of a checkpoint folder
    :param dht_prefix: under which the blocks are announced; no dot or blank in it
    :param n_blocks: blocks of the model
    :param block_bytes: weights of one block in memory, for the estimate of memory; 0 if negligible
    :param update_period_s: how often servers announce themselves
    :param expiration_s: how long an announcement lives: for so long a killed server still looks ONLINE
    :param start_deadline_s: for the nursery, and again for servers to be ready
    :param num_handlers: processes that take requests, per server
    :param attn_cache_tokens: attention cache of each server, in tokens per block
    :param torch_dtype: of the blocks
    :param device: of the blocks, as torch names it
    :param log_level: of hivemind and petals in the children's logs
    :param quant: none, int8 or nf4: how the linear layers of the blocks are held
    :param store_dir: absolute path of a block store that all servers share; None for none
    :param store_max_bytes: of the store, the least recently used blocks go first; None for no limit
    :param argv: more arguments of ``petals.cli.run_server`` for every server
    :param cluster: where its servers run
    :param network: what lies between them
    :param throughput: given: each server announces its ``throughput_tps``; measured: what petals measures on its
        device, once per server at its start
    """

    model_path: Path
    dht_prefix: str
    n_blocks: int
    servers: tuple[ServerSpec, ...]
    block_bytes: int = 0
    update_period_s: float = 10.0
    expiration_s: float = 30.0
    start_deadline_s: float = 120.0
    num_handlers: int = 1
    attn_cache_tokens: int = 8192
    torch_dtype: str = "float32"
    device: str = "cpu"
    log_level: str = "INFO"
    quant: str = "none"
    store_dir: str | None = None
    store_max_bytes: int | None = None
    argv: tuple[str, ...] = ()
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    throughput: str = "given"


def validate(spec: SwarmSpec, *, whole: bool = True) -> None:
    """Refuse a swarm that cannot work.

    :param whole: every block must be held from the start (not so for a swarm that later servers complete)
    :raises BadInput: with the field as a user would write it
    """
    _validate_model(spec)
    _validate_times(spec)
    _validate_names([server.name for server in spec.servers])
    for index, server in enumerate(spec.servers):
        _validate_server(server, f"swarm.servers[{index}]", spec.n_blocks)
    if whole:
        _validate_coverage(spec)
    if spec.throughput not in THROUGHPUTS:
        raise BadInput("swarm.throughput", spec.throughput, ", ".join(THROUGHPUTS))
    if spec.cluster.kind == "slurm" and spec.cluster.address is None:
        allowed = "only inside a job that `python -m swarmlab.swarm.slurm` has written (docs/clusters.md)"
        raise BadInput("cluster", "slurm", allowed)
    if spec.cluster.kind == "local":  # of other machines, nothing is known yet
        visible_gpus(spec.cluster.gpus, os.environ.get(CUDA_VISIBLE))
        _validate_ports(spec.servers)
        _validate_memory(spec)


def _validate_model(spec: SwarmSpec) -> None:
    if not spec.model_path.is_absolute():
        raise BadInput("swarm.model_path", str(spec.model_path), "an absolute path")
    if not (spec.model_path / "config.json").is_file():
        raise BadInput("swarm.model_path", str(spec.model_path), "a checkpoint folder with a config.json")
    if spec.n_blocks < 1:
        raise BadInput("swarm.n_blocks", spec.n_blocks, "at least 1")
    if not spec.dht_prefix or set(spec.dht_prefix) & set(". "):
        raise BadInput("swarm.dht_prefix", spec.dht_prefix, "a name without dots or blanks")


def _validate_times(spec: SwarmSpec) -> None:
    for name in ("update_period_s", "start_deadline_s"):
        if getattr(spec, name) <= 0:
            raise BadInput(f"swarm.{name}", getattr(spec, name), "more than 0 seconds")
    if spec.expiration_s <= spec.update_period_s:
        allowed = f"more than update_period_s ({spec.update_period_s:g}), or records lapse in between"
        raise BadInput("swarm.expiration_s", spec.expiration_s, allowed)
    if not 1 <= spec.num_handlers <= MAX_HANDLERS:
        raise BadInput("swarm.num_handlers", spec.num_handlers, f"1 to {MAX_HANDLERS} processes per server")


def _validate_names(names: Sequence[str]) -> None:
    if not names:
        raise BadInput("swarm.servers", [], "at least one server")
    for name in names:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise BadInput("swarm.servers.name", name, "letters, digits, - and _")
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise BadInput("swarm.servers.name", double[0], "a name used once")


def _validate_server(server: ServerSpec, where: str, n_blocks: int) -> None:
    if (server.span is None) == (server.n_blocks is None):
        raise BadInput(where, server.name, "either a span or a number of blocks (n_blocks), not both")
    if server.span is not None and server.span.end > n_blocks:
        raise BadInput(f"{where}.end", server.span.end, f"blocks within [0, {n_blocks})")
    if server.n_blocks is not None and not 1 <= server.n_blocks <= n_blocks:
        raise BadInput(f"{where}.n_blocks", server.n_blocks, f"1 to {n_blocks}")
    if not 0 < server.throughput_tps <= MAX_THROUGHPUT_TPS:
        allowed = f"more than 0, at most {MAX_THROUGHPUT_TPS:g}"
        raise BadInput(f"{where}.throughput_tps", server.throughput_tps, allowed)


def _validate_coverage(spec: SwarmSpec) -> None:
    """Fixed spans must cover the model, as far as servers that choose for themselves cannot fill the gaps."""
    held = {block for server in spec.servers if server.span for block in server.span}
    missing = [block for block in range(spec.n_blocks) if block not in held]
    choosable = sum(server.n_blocks or 0 for server in spec.servers)
    if len(missing) > choosable:
        allowed = f"every block of [0, {spec.n_blocks}) held by a server"
        raise BadInput("swarm.servers", f"a gap at block {missing[0]}", allowed)


def _validate_ports(servers: Sequence[ServerSpec]) -> None:
    ports = [server.port for server in servers if server.port is not None]
    for port in ports:
        if not 1024 <= port < 2**16 or ports.count(port) > 1:
            raise BadInput("swarm.servers.port", port, "1024 to 65535, each used once")
        if not is_free(port):
            raise BadInput("swarm.servers.port", port, "a port that nothing listens on")


def _validate_memory(spec: SwarmSpec) -> None:
    needed, available = memory_bytes(spec), psutil.virtual_memory().available
    if needed > available:
        allowed = f"a swarm that fits into the {available / 2**30:.1f} GiB of memory available now"
        wanted = f"{len(spec.servers)} servers, about {needed / 2**30:.1f} GiB"
        raise BadInput("swarm.servers", wanted, allowed)


def memory_bytes(spec: SwarmSpec) -> int:
    """Estimate of what the swarm's processes will take, from measured sizes of processes and the weights."""
    held = sum(server.span.length if server.span else server.n_blocks or 0 for server in spec.servers)
    weights_bytes = held * spec.block_bytes if spec.device == "cpu" else 0
    each_bytes = FRESH_SERVER_BYTES if starts_fresh(spec.cluster, spec.device) else SERVER_BYTES
    return BASE_BYTES + len(spec.servers) * each_bytes + weights_bytes
