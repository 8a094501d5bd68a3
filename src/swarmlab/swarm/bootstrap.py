"""The orchestrator's side of the bootstrap node: the swarm's first address, and who tells what the DHT holds."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from swarmlab.channel import ChannelClosed
from swarmlab.errors import SwarmFailed
from swarmlab.swarm.ready import log_tail
from swarmlab.types import Intent, ServerRecord, ServerState, Span, SwarmView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from swarmlab.swarm.local import Nursery

NAME = "bootstrap"
ANSWER_S = 20.0


class Bootstrap:
    """A running bootstrap node; safe to ask from several threads.

    :param temp_dir: for its key
    :param deadline_s: for it to listen
    :raises SwarmFailed: if it does not, with the end of its log
    """

    def __init__(
        self, nursery: Nursery, port: int, temp_dir: Path, log_path: Path, deadline_s: float
    ) -> None:
        identity_path = temp_dir / f"{NAME}.id"
        nursery.identity(identity_path)
        args = {"maddr": f"/ip4/{nursery.address}/tcp/{port}", "identity_path": str(identity_path)}
        self._child = nursery.spawn("children:bootstrap", NAME, args, log_path, channel=True, env={})
        self._lock = threading.Lock()
        self._n_asked = 0
        with self._failing_as("start"):
            hello = self._child.channel(deadline_s).recv(deadline_s)
        self.maddrs: list[str] = hello["maddrs"]

    def snapshot(self, dht_prefix: str, n_blocks: int) -> tuple[SwarmView, list[str]]:
        """The swarm as the DHT shows it now, and one line for each record that was skipped or mended.

        :raises SwarmFailed: if the DHT cannot be read
        """
        answer = self._ask(op="snapshot", prefix=dht_prefix, n_blocks=n_blocks)
        if not answer["ok"]:
            raise SwarmFailed(f"the DHT could not be read: {answer['error']}")
        return view_from_json(answer["view"]), answer["problems"]

    def serves(self, peer_id: str, dht_prefix: str, block: int, timeout_s: float) -> bool:
        """Whether a server itself, asked past the DHT, says that it serves a block."""
        return self._ask(op="info", peer_id=peer_id, prefix=dht_prefix, block=block, timeout_s=timeout_s)[
            "ok"
        ]

    def close(self) -> None:
        self._child.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._lock, self._failing_as("answer"):
            self._n_asked += 1
            channel = self._child.channel()
            channel.send({"id": self._n_asked, **request})
            while (answer := channel.recv(ANSWER_S))["id"] != self._n_asked:
                pass  # the answer to a question that was given up
        return answer

    @contextmanager
    def _failing_as(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ChannelClosed, TimeoutError) as error:
            log = log_tail(self._child.log_path)
            raise SwarmFailed(
                f"the bootstrap node did not {what} ({error}); the end of its log:\n{log}"
            ) from None


def view_from_json(data: Mapping[str, Any]) -> SwarmView:
    """What ``swarmlab.bridge.snapshot.view_to_json`` wrote."""
    records = (
        ServerRecord(
            **{
                **server,
                "span": Span(*server["span"]),
                "state": ServerState(server["state"]),
                "intent": _intent_from_json(server["intent"]),
            }
        )
        for server in data["servers"]
    )
    return SwarmView(data["n_blocks"], tuple(records), data["seen_at_s"])


def _intent_from_json(data: Mapping[str, Any] | None) -> Intent | None:
    return None if data is None else Intent(Span(*data["span"]), data["announced_at_s"])
