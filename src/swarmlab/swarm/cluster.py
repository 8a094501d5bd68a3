"""Where servers run: the settings of a cluster, which server gets which place, and what a place must be able to do."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from swarmlab.errors import BadInput
from swarmlab.health.addresses import unroutable_block
from swarmlab.health.gpus import CUDA_VISIBLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from swarmlab.swarm.child import Child

KINDS = ("local", "ray", "slurm")
DEALS = ("in_turn", "in_groups")
PLACEMENTS = ("spread", "packed")
STARTS = ("auto", "fork", "fresh")


@dataclass
class ClusterSettings:
    """Where the servers of a swarm run; clients and the bootstrap node always run where the command was given.

    :param kind: local: processes of this machine; ray: machines of a Ray cluster; slurm: the Ray cluster that the
        job made by ``swarmlab.swarm.slurm`` has started
    :param gpus: numbers of this machine's GPUs that servers share, as nvidia-smi counts them, or, where
        ``CUDA_VISIBLE_DEVICES`` is set, among those that it shows; empty: what the process sees (local only)
    :param deal: which server gets which machine and GPU: in_turn (neighbours apart) or in_groups (together)
    :param start: fork: from one process that has imported everything; fresh: a Python of its own for each server,
        which a GPU needs; auto: whichever the device needs
    :param address: of a running Ray cluster; None starts one on this machine, for this run only
    :param nodes: machines (groups of servers) of a Ray cluster
    :param gpus_per_node: GPUs reserved on each
    :param cpus_per_node: processors reserved on each
    :param placement: spread: each group on another machine; packed: on as few machines as there is room for
    :param bind: loopback: reached from this machine only; node: every process at its machine's own address, which
        whoever is on that network can reach; or a network, as in 10.1.0.0/16: at its address there
    :param public_ip: of the router or cloud that leads from outside to the address of ``bind``, port by port: servers
        announce it beside that one, which they listen on (local only); None if there is none
    :param share_files: whether machines that see the run folder write into it; false copies logs and events over Ray
    """

    kind: str = "local"
    gpus: list[int] = field(default_factory=list)
    deal: str = "in_turn"
    start: str = "auto"
    address: str | None = None
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: float = 1.0
    placement: str = "spread"
    bind: str = "loopback"
    public_ip: str | None = None
    share_files: bool = True


def check(cluster: ClusterSettings, device: str) -> None:
    """
    :param device: of the servers' blocks, as torch names it
    :raises BadInput: for a setting that cannot work
    """
    choices = {"kind": KINDS, "deal": DEALS, "start": STARTS, "placement": PLACEMENTS}
    for name, allowed in choices.items():
        if getattr(cluster, name) not in allowed:
            raise BadInput(f"cluster.{name}", getattr(cluster, name), ", ".join(allowed))
    _check_bind(cluster.bind)
    if cluster.public_ip is not None:
        _check_public_ip(cluster, cluster.public_ip)
    if cluster.nodes < 1:
        raise BadInput("cluster.nodes", cluster.nodes, "1 or more")
    if (
        cluster.kind == "ray"
        and cluster.address is None
        and cluster.nodes > 1
        and cluster.placement == "spread"
    ):
        allowed = "1 on this machine alone; give cluster.address, or cluster.placement=packed"
        raise BadInput("cluster.nodes", cluster.nodes, allowed)
    if cluster.gpus_per_node < 0:
        raise BadInput("cluster.gpus_per_node", cluster.gpus_per_node, "0 or more")
    if not 0 <= cluster.cpus_per_node < float("inf"):
        raise BadInput("cluster.cpus_per_node", cluster.cpus_per_node, "0 or more")
    _check_gpus(cluster, device)


def _check_bind(bind: str) -> None:
    if bind in ("loopback", "node"):
        return
    try:
        ipaddress.IPv4Network(bind)
    except ValueError:
        allowed = "loopback, node, or the IPv4 network to listen on, as in 10.1.0.0/16"
        raise BadInput("cluster.bind", bind, allowed) from None


def _check_public_ip(cluster: ClusterSettings, public_ip: str) -> None:
    try:
        is_loopback = ipaddress.IPv4Address(public_ip).is_loopback
    except ValueError:
        raise BadInput("cluster.public_ip", public_ip, "an IPv4 address, as in 8.8.8.8") from None
    block = unroutable_block(public_ip)
    if is_loopback or block is not None:
        allowed = f"an address that others reach, unlike those in {block or '127.0.0.0/8'}"
        raise BadInput("cluster.public_ip", public_ip, allowed)
    if cluster.kind != "local":
        allowed = f"null with cluster={cluster.kind}: each of its machines has an address of its own"
        raise BadInput("cluster.public_ip", public_ip, allowed)
    if cluster.bind == "loopback":
        allowed = "cluster.bind=node, or a network, beside it: nothing leads from outside to loopback"
        raise BadInput("cluster.public_ip", public_ip, allowed)


def _check_gpus(cluster: ClusterSettings, device: str) -> None:
    gpus = cluster.gpus
    if len(set(gpus)) < len(gpus) or any(number < 0 for number in gpus):
        raise BadInput("cluster.gpus", gpus, "numbers of GPUs, each once, as nvidia-smi counts them")
    if gpus and cluster.kind != "local":
        raise BadInput(
            "cluster.gpus", gpus, "cluster.gpus_per_node: Ray says which GPUs of a machine are ours"
        )
    on_gpu = device.startswith("cuda")
    if gpus and device != "cuda":
        raise BadInput("swarm.device", device, "cuda (each server then sees its own GPU only)")
    if on_gpu and cluster.kind != "local" and not cluster.gpus_per_node:
        raise BadInput("cluster.gpus_per_node", 0, "at least 1 with swarm.device=cuda")
    if on_gpu and cluster.start == "fork":
        raise BadInput("cluster.start", "fork", "fresh or auto with a GPU: CUDA does not survive a fork")


def check_files_reach(cluster: ClusterSettings, experiment: str) -> None:
    """For an experiment that steers its servers by files beside them, such as gates that hold a reload.

    :raises BadInput: if servers would not see them
    """
    if cluster.kind == "local" or (cluster.kind == "ray" and cluster.address is None and cluster.share_files):
        return
    allowed = (
        f"local, for +exp={experiment}: it steers its servers by files, which do not reach other machines"
    )
    raise BadInput("cluster", cluster.kind, allowed)


def starts_fresh(cluster: ClusterSettings, device: str) -> bool:
    """Whether each server starts a Python of its own."""
    return cluster.start == "fresh" or (cluster.start == "auto" and device.startswith("cuda"))


def deal(count: int, n_places: int, how: str) -> list[int]:
    """The place of each of ``count`` servers.

    :param how: one of DEALS
    :return: numbers of places, in [0, n_places); their sizes differ by at most one
    """
    if how == "in_turn":
        return [index % n_places for index in range(count)]
    return [index * n_places // count for index in range(count)]


def gpu_variables(
    gpus: Sequence[str], n_servers: int, how: str, *, inherit: bool
) -> list[dict[str, str | None]]:
    """What each server of one machine must find in its environment, so that it sees its own GPU only.

    :param gpus: that servers may use, as ``CUDA_VISIBLE_DEVICES`` names them
    :param inherit: without ``gpus``, whether they see what this process sees, instead of none
    :return: per server; None means that the variable is not set at all
    """
    if not gpus:
        seen = os.environ.get(CUDA_VISIBLE) if inherit else ""
        return [{CUDA_VISIBLE: seen} for _ in range(n_servers)]
    return [{CUDA_VISIBLE: gpus[place]} for place in deal(n_servers, len(gpus), how)]


class Host(Protocol):
    """A machine with a nursery, as the orchestrator sees it: ``local.Nursery``, or ``remote.RemoteNursery``."""

    @property
    def address(self) -> str:
        """IPv4 address that its processes listen on."""
        ...

    @property
    def temp_dir(self) -> Path:
        """On that machine."""
        ...

    @property
    def gpus(self) -> Sequence[str]:
        """That its servers share; empty if nobody said so."""
        ...

    def wait_ready(self, deadline_s: float) -> float: ...

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
    ) -> Child: ...

    def identity(self, path: Path) -> str: ...

    def signal(self, name: str, number: int, *, leader_only: bool = False) -> bool: ...

    def free_ports(self, count: int, taken: set[int]) -> list[int]:
        """
        :param taken: not these
        """
        ...

    def group_states(self, pgid: int) -> dict[int, str]:
        """As ``swarmlab.health.processes.group_states``, on that machine."""
        ...

    def stop(self) -> None: ...
