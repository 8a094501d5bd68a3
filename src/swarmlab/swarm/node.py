"""What runs on each machine of a cluster for the orchestrator: a nursery, and the files that its children write.

Plain Python, whoever carries the calls: a Ray actor (``swarmlab.swarm.ray_cluster``), or a test.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.child import Child
from swarmlab.swarm.local import Nursery
from swarmlab.swarm.machine import boot_id, make_temp_dir, remove_temp_dir, swarm_address

if TYPE_CHECKING:
    from collections.abc import Mapping

# Files that only grow, and that the orchestrator wants: logs, and events of servers.
GATHERED = (".log", ".jsonl")
MAX_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class NodeOrder:
    """What the orchestrator tells a machine.

    :param name: of its nursery, in logs
    :param run_dir: of the orchestrator; absolute
    :param boot_id: of the orchestrator's machine
    :param share_files: whether to write into ``run_dir`` where it is the same machine
    :param env: for the nursery
    :param bind: see ``swarmlab.swarm.machine.address_of``
    :param gpus: that its servers share
    """

    name: str
    run_dir: str
    boot_id: str
    share_files: bool
    env: Mapping[str, str]
    bind: str
    gpus: tuple[str, ...] = ()


class NodeAgent:
    """Methods are called from any thread, with and for plain values."""

    def __init__(self, order: NodeOrder) -> None:
        self._order = order
        same_machine = boot_id() == order.boot_id and Path(order.run_dir).is_dir()
        self._mirror = None if order.share_files and same_machine else make_temp_dir("swarmlab-run-")
        self._sent_bytes: dict[Path, int] = {}
        self._exits: list[tuple[int, int | None]] = []
        self._changed = threading.Event()
        self._children: dict[int, Child] = {}
        address, self._temp_dir = swarm_address(order.bind), make_temp_dir()
        self._nursery = Nursery(
            self._temp_dir, self._path(f"{order.run_dir}/logs/{order.name}.log"), order.env, self._note_exit,
            address=address, gpus=order.gpus,
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """What the orchestrator must know of this machine."""
        return {
            "address": self._nursery.address,
            "temp_dir": str(self._nursery.temp_dir),
            "gpus": list(self._nursery.gpus),
            "hostname": socket.gethostname(),
            "boot_id": boot_id(),
        }

    def clock(self) -> float:
        return time.monotonic()

    def wait_ready(self, deadline_s: float) -> float:
        return self._nursery.wait_ready(deadline_s)

    def spawn(self, kind: str, name: str, args: dict[str, Any], log: str, **options: Any) -> int:
        """Start a child; paths below the orchestrator's run folder mean ours.

        :return: its pid
        """
        child = self._nursery.spawn(
            kind, name, self._translated(args), self._path(log), channel=False, **options
        )
        self._children[child.pid] = child
        return child.pid

    def identity(self, path: str) -> str:
        return self._nursery.identity(Path(path))

    def signal(self, name: str, number: int, leader_only: bool) -> bool:
        return self._nursery.signal(name, number, leader_only=leader_only)

    def free_ports(self, count: int, taken: list[int]) -> list[int]:
        return self._nursery.free_ports(count, set(taken))

    def group_states(self, pgid: int) -> dict[int, str]:
        return self._nursery.group_states(pgid)

    def news(self, wait_s: float) -> dict[str, Any]:
        """What happened since the last call: ``exits`` [(pid, status)], ``files`` {path in the run folder: bytes}.

        :param wait_s: how long to wait for an exit
        """
        self._changed.wait(wait_s)
        self._changed.clear()
        # files first: what a child wrote before it died must not come after the news of its death
        exits, files = list(self._exits), self._fresh_bytes()
        del self._exits[: len(exits)]
        return {"exits": exits, "files": files}

    def stop(self) -> None:
        """End every process; what they wrote can still be asked for."""
        self._nursery.stop()
        remove_temp_dir(self._temp_dir)

    def leave(self) -> None:
        """Remove what was written here."""
        if self._mirror is not None:
            remove_temp_dir(self._mirror)

    def _note_exit(self, child: Child) -> None:
        self._exits.append((child.pid, child.status))
        self._changed.set()

    def _fresh_bytes(self) -> dict[str, bytes]:
        if self._mirror is None:
            return {}
        found = {}
        for path in sorted(self._mirror.rglob("*")):
            if path.suffix in GATHERED and (data := self._unsent(path)):
                self._sent_bytes[path] = self._sent_bytes.get(path, 0) + len(data)
                found[str(path.relative_to(self._mirror))] = data
        return found

    def _unsent(self, path: Path) -> bytes:
        with path.open("rb") as file:
            file.seek(self._sent_bytes.get(path, 0))
            data = file.read(MAX_CHUNK_BYTES)
        # rows go whole, so that the orchestrator can turn their clock into its own
        return data[: data.rfind(b"\n") + 1] if path.suffix == ".jsonl" else data

    def _path(self, path: str) -> Path:
        """Where a file of the orchestrator's run folder lies here; its folder is made."""
        here = Path(self._translated(path))
        here.parent.mkdir(parents=True, exist_ok=True)
        return here

    def _translated(self, value: Any) -> Any:
        """Values of JSON with each path below the run folder turned into ours."""
        if self._mirror is None:
            return value
        if isinstance(value, str):
            inside = value == self._order.run_dir or value.startswith(f"{self._order.run_dir}/")
            return f"{self._mirror}{value.removeprefix(self._order.run_dir)}" if inside else value
        if isinstance(value, dict):
            return {name: self._translated(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._translated(one) for one in value]
        return value


def shifted(line: bytes, offset_s: float) -> bytes:
    """A row of another machine's events, on this machine's monotonic clock.

    :param offset_s: added to ``mono_s``
    :raises SwarmFailed: if it is no row
    """
    try:
        row = json.loads(line)
    except ValueError:
        raise SwarmFailed(f"not a row of events: {line[:200]!r}") from None
    if isinstance(row, dict) and isinstance(row.get("mono_s"), (int, float)):
        row["mono_s"] += offset_s
    return json.dumps(row).encode() + b"\n"
