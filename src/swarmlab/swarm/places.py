"""The machines of a swarm: this one, with the clients and the bootstrap node, and those that the servers run on."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from swarmlab.errors import SwarmFailed
from swarmlab.health.gpus import CUDA_VISIBLE, visible_gpus
from swarmlab.swarm.cluster import deal, gpu_variables
from swarmlab.swarm.local import Nursery
from swarmlab.swarm.machine import LOOPBACK, swarm_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from swarmlab.swarm.child import Child
    from swarmlab.swarm.cluster import ClusterSettings, Host
    from swarmlab.swarm.spec import SwarmSpec


class Places:
    """Opens the nursery of this machine at once, and the others when asked.

    :param temp_dir: of the nursery here
    :param on_exit: called from a thread with each child whose group is gone, wherever it was
    """

    def __init__(
        self,
        cluster: ClusterSettings,
        run_dir: Path,
        temp_dir: Path,
        log_level: str,
        on_exit: Callable[[Child], None],
    ) -> None:
        self._cluster, self._run_dir, self._on_exit = cluster, run_dir, on_exit
        self._env = {"HIVEMIND_LOGLEVEL": log_level, "HIVEMIND_COLORS": "0"}
        self._stack = ExitStack()
        gpus = visible_gpus(cluster.gpus, os.environ.get(CUDA_VISIBLE))
        self.here = Nursery(
            temp_dir,
            run_dir / "logs/nursery.log",
            self._env,
            on_exit,
            address=swarm_address(cluster.bind),
            gpus=gpus,
        )

    def open(self, deadline_s: float, on_state: Callable[[str, str, str], None]) -> list[Host]:
        """The machines that servers run on, ready to start some.

        :param deadline_s: for each
        :raises SwarmFailed: if one does not come, or could not be reached
        """
        if self._cluster.kind == "local":
            return [self.here]
        from swarmlab.swarm import ray_cluster  # noqa: PLC0415 - a second, and threads, for those who need it

        on_state("cluster", "starting", f"Ray at {self._cluster.address or 'this machine'}")
        joined = ray_cluster.joined(self._cluster, self._run_dir, self._env, self._on_exit, deadline_s)
        hosts = self._stack.enter_context(joined)
        for host in hosts:
            if host.address == LOOPBACK and not host.is_here:
                allowed = "cluster.bind=node, so that they reach each other (docs/clusters.md)"
                raise SwarmFailed(
                    f"servers would run on other machines, such as {host.hostname}: use {allowed}"
                )
            import_s = host.wait_ready(deadline_s)
            on_state(host.name, "online", f"{host.hostname}, {host.address}; imports took {import_s:.1f} s")
        return list(hosts)

    def close(self) -> None:
        """End every process, everywhere."""
        try:
            self._stack.close()
        finally:
            self.here.stop()


def dealt(spec: SwarmSpec, hosts: Sequence[Host]) -> list[tuple[Host, dict[str, str | None]]]:
    """The machine of each server, and the variables by which it sees its own GPU only."""
    numbers = deal(len(spec.servers), len(hosts), spec.cluster.deal)
    gpus = {index: list(gpus_of(spec, host, numbers.count(index))) for index, host in enumerate(hosts)}
    return [(hosts[number], gpus[number].pop(0)) for number in numbers]


def gpus_of(spec: SwarmSpec, host: Host, n_servers: int) -> Sequence[dict[str, str | None]]:
    """For each server of a machine, the variables by which it sees its own GPU only."""
    inherit = spec.cluster.kind == "local"
    return gpu_variables(host.gpus, n_servers, spec.cluster.deal, inherit=inherit)
