"""Machines of a Ray cluster: on each an actor with the resources that its servers share, and in it a nursery.

Ray only finds the machines, reserves processors and GPUs, and carries calls; petals runs below the actors as it does
anywhere else. Ray's workers ignore SIGINT and pass that on; the nursery's children set their own handlers.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import swarmlab
from swarmlab.errors import SwarmFailed
from swarmlab.swarm.machine import LOOPBACK, boot_id, make_temp_dir
from swarmlab.swarm.node import NodeAgent, NodeOrder
from swarmlab.swarm.remote import NodeLost, RemoteNursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from swarmlab.swarm.cluster import ClusterSettings
    from swarmlab.swarm.local import Child

STRATEGY = {"spread": "STRICT_SPREAD", "packed": "PACK"}
MIN_STORE_BYTES = 80 * 2**20  # nothing large goes through Ray's object store
CALLS_AT_ONCE = 8
# Ray reports usage to its makers and wants a token from whoever joins; neither makes sense for a cluster of one
# machine that lives as long as the run. One that somebody else started keeps its own rules.
OWN_CLUSTER_ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


@contextmanager
def joined(
    cluster: ClusterSettings,
    run_dir: Path,
    env: Mapping[str, str],
    on_exit: Callable[[Child], None],
    deadline_s: float,
) -> Iterator[list[RemoteNursery]]:
    """The machines of a cluster, each with a nursery; at the end nothing of ours is left on any of them.

    :param env: for the nurseries
    :param on_exit: called from a thread with each child whose group is gone
    :param deadline_s: for the cluster to have room
    :raises SwarmFailed: if it cannot be joined, or has no room
    """
    with ExitStack() as stack:
        ray = stack.enter_context(_connected(cluster))
        group = stack.enter_context(_reserved(ray, cluster, deadline_s))
        hosts = []
        for index in range(cluster.nodes):
            order = NodeOrder(
                name=f"nursery-{index}",
                run_dir=str(run_dir),
                boot_id=boot_id(),
                share_files=cluster.share_files,
                env=env,
                bind=cluster.bind,
            )
            call = stack.enter_context(_actor(ray, cluster, group, index, order))
            hosts.append(RemoteNursery(order.name, call, run_dir, on_exit))
            stack.callback(hosts[-1].stop)
        yield hosts


@contextmanager
def _connected(cluster: ClusterSettings) -> Iterator[Any]:
    """Ray itself, joined or started for this run."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with ExitStack() as stack:
        options: dict[str, Any] = {"address": cluster.address}
        if cluster.address is None:
            for name, value in OWN_CLUSTER_ENV.items():
                os.environ.setdefault(name, value)
            temp_dir = make_temp_dir()
            stack.callback(shutil.rmtree, temp_dir, ignore_errors=True)
            options = {
                "num_cpus": max(1, round(cluster.nodes * cluster.cpus_per_node)),
                "num_gpus": cluster.nodes * cluster.gpus_per_node or None,
                "include_dashboard": False,
                "object_store_memory": MIN_STORE_BYTES,
                "_node_ip_address": LOOPBACK,
                "_temp_dir": str(temp_dir),
            }
        import ray  # noqa: PLC0415 - after its variables are set

        try:
            with _handlers_kept():
                ray.init(
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    configure_logging=False,
                    namespace="swarmlab",
                    **options,
                )
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise SwarmFailed(f"cannot join Ray at {cluster.address or 'this machine'}: {error}") from None
        stack.callback(ray.shutdown)
        yield ray


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; ours ends the swarm in order, and then Ray."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:  # Ray's handler leaves with the bare number
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _reserved(ray: Any, cluster: ClusterSettings, deadline_s: float) -> Iterator[Any]:
    """Room on the machines: one bundle for each group of servers.

    :raises SwarmFailed: if there is none within ``deadline_s`` seconds
    """
    from ray.util.placement_group import placement_group, remove_placement_group  # noqa: PLC0415 - as above

    wanted = {"CPU": cluster.cpus_per_node, "GPU": float(cluster.gpus_per_node)}
    bundle = {name: amount for name, amount in wanted.items() if amount} or {"CPU": 0.001}
    group = placement_group([bundle] * cluster.nodes, strategy=STRATEGY[cluster.placement])
    try:
        if not group.wait(deadline_s):
            there = ray.cluster_resources()
            asked = f"{cluster.nodes} machines ({cluster.placement}) with {bundle} each"
            raise SwarmFailed(
                f"the Ray cluster has no room for {asked} within {deadline_s:.0f} s; it has {there}"
            )
        yield group
    finally:
        with suppress(Exception):  # the cluster itself may be gone
            remove_placement_group(group)


@contextmanager
def _actor(
    ray: Any, cluster: ClusterSettings, group: Any, index: int, order: NodeOrder
) -> Iterator[Callable[..., Any]]:
    """An agent in its bundle; a call by name, which raises NodeLost when it is gone."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415 - as above

    package_root = str(Path(swarmlab.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    agent = (
        ray.remote(RayAgent)
        .options(
            num_cpus=cluster.cpus_per_node,
            num_gpus=cluster.gpus_per_node,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        .remote(order)
    )

    def call(method: str, *args: Any, **options: Any) -> Any:
        try:
            return ray.get(getattr(agent, method).remote(*args, **options))
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            raise NodeLost(str(error)) from None

    try:
        yield call
    finally:
        with suppress(Exception):  # it, or the cluster, may be gone
            ray.kill(agent)


class RayAgent(NodeAgent):
    """A NodeAgent whose servers share the GPUs that Ray gave the actor."""

    def __init__(self, order: NodeOrder) -> None:
        import ray  # noqa: PLC0415 - as above

        super().__init__(replace(order, gpus=tuple(str(number) for number in ray.get_gpu_ids())))
