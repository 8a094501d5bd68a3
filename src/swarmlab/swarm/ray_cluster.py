"""Machines of a Ray cluster: on each an actor with the resources that its servers share, and in it a nursery.

Ray only finds the machines, reserves processors and GPUs, and carries calls; petals runs below the actors as it does
anywhere else. Ray's workers ignore SIGINT and pass that on; the nursery's children set their own handlers.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import swarmlab
from swarmlab.errors import SwarmFailed
from swarmlab.swarm.machine import LOOPBACK, RAY_SOCKET_BYTES, boot_id, make_temp_dir, remove_temp_dir
from swarmlab.swarm.node import NodeAgent, NodeOrder
from swarmlab.swarm.ports import free_ports
from swarmlab.swarm.ray_process import RAY_ENV, head_options, new_token, ray_running
from swarmlab.swarm.remote import NoAnswer, NodeLost, RemoteNursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from swarmlab.swarm.child import Child
    from swarmlab.swarm.cluster import ClusterSettings

STRATEGY = {"spread": "STRICT_SPREAD", "packed": "PACK"}
MIN_STORE_BYTES = 80 * 2**20  # nothing large goes through Ray's object store
CALLS_AT_ONCE = 8
ANSWER_S = 60.0  # for a call that has no deadline of its own
LET_GO_S = 10.0  # for what is left of Ray to let go of this process


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
        ray = stack.enter_context(_connected(cluster, run_dir))
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
            hosts.append(RemoteNursery(order.name, call, run_dir, on_exit, deadline_s))
            stack.callback(hosts[-1].stop)
        yield hosts


@contextmanager
def _connected(cluster: ClusterSettings, run_dir: Path) -> Iterator[Any]:
    """Ray itself, joined or started for this run."""
    with ExitStack() as stack:
        address = cluster.address or stack.enter_context(_own_ray(cluster, run_dir / "logs/ray.log"))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray  # noqa: PLC0415 - after its variables are set

        try:
            with _handlers_kept():
                ray.init(
                    address,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    configure_logging=False,
                    namespace="swarmlab",
                )
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise SwarmFailed(f"cannot join Ray at {cluster.address or 'this machine'}: {error}") from None
        stack.callback(bounded, ray.shutdown, LET_GO_S)
        yield ray


@contextmanager
def _own_ray(cluster: ClusterSettings, log_path: Path) -> Iterator[str]:
    """A Ray of this machine alone, for this run; its address."""
    for name, value in {**RAY_ENV, "RAY_AUTH_TOKEN": new_token()}.items():
        os.environ.setdefault(name, value)  # Ray reads them once in the life of a process
    folder, ports = make_temp_dir(inside_bytes=RAY_SOCKET_BYTES), free_ports(2, set())
    options = [
        *head_options(LOOPBACK, ports),
        f"--temp-dir={folder}",
        f"--num-cpus={max(1, round(cluster.nodes * cluster.cpus_per_node))}",
        *([f"--num-gpus={gpus}"] if (gpus := cluster.nodes * cluster.gpus_per_node) else []),
        f"--object-store-memory={MIN_STORE_BYTES}",
        "--min-worker-port=0",  # any, so that two runs can be on one machine
        "--max-worker-port=0",
    ]
    try:
        with ray_running(options, os.environ, folder, log_path):
            yield f"{LOOPBACK}:{ports[0]}"
    finally:
        remove_temp_dir(folder)


def bounded(step: Callable[[], Any], limit_s: float) -> None:
    """Do something that may hang or fail when the cluster is gone; after the limit go on without it."""

    def attempt() -> None:
        with suppress(Exception):
            step()

    thread = threading.Thread(target=attempt, name="ray teardown", daemon=True)
    thread.start()
    thread.join(limit_s)


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
        bounded(lambda: remove_placement_group(group), LET_GO_S)


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

    def call(method: str, *args: Any, limit_s: float = ANSWER_S, **options: Any) -> Any:
        try:
            return ray.get(getattr(agent, method).remote(*args, **options), timeout=limit_s)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.GetTimeoutError:
            raise NoAnswer(f"no answer to {method} within {limit_s:.0f} s") from None
        except ray.exceptions.RayError as error:
            raise NodeLost(str(error)) from None

    try:
        yield call
    finally:
        bounded(lambda: ray.kill(agent), LET_GO_S)


class RayAgent(NodeAgent):
    """A NodeAgent whose servers share the GPUs that Ray gave the actor."""

    def __init__(self, order: NodeOrder) -> None:
        import ray  # noqa: PLC0415 - as above

        super().__init__(replace(order, gpus=tuple(str(number) for number in ray.get_gpu_ids())))
