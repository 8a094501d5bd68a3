"""A petals client that talks to one server of its choice, block by block; and what a test sees of our servers."""

from __future__ import annotations

import time
import uuid
from typing import Any

import torch

from swarmlab.bridge.events import read_events
from swarmlab.swarm.ready import wait_for
from swarmlab.types import Span

DEADLINE_S = 60.0


class SpanClient:
    """Petals' own client, without its routing."""

    def __init__(self, swarm) -> None:
        from swarmlab.bridge.clients.failover import load_model

        args = {
            "model_path": str(swarm.spec.model_path),
            "initial_peers": swarm.initial_peers,
            "dht_prefix": swarm.spec.dht_prefix,
            "client": {"show_route": False, "max_retries": 1, "request_timeout": 20},
        }
        self._swarm = swarm
        self._manager = load_model(args).transformer.h.sequence_manager
        self._manager._update()

    def open(self, name: str, span: Span) -> SpanSession:
        """A session of one server on some of its blocks."""
        from swarmlab.bridge.clients.petals_span import open_span, span_at

        there = span_at(self._swarm.servers[name].peer_id, span)
        return SpanSession(open_span(self._manager, there, self._manager.rpc_info, max_length=512))

    def outputs(self, name: str, span: Span, hidden: torch.Tensor) -> torch.Tensor:
        """What a server computes in a new session."""
        session = self.open(name, span)
        try:
            return session.step(hidden)
        finally:
            session.close()

    def close(self) -> None:
        self._manager.shutdown()
        self._manager.dht.shutdown()


class SpanSession:
    """An open session of one server."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def step(self, hidden: torch.Tensor) -> torch.Tensor:
        """:raises Exception: if the server does not, or no more, serve the session's blocks"""
        order = torch.arange(hidden.shape[0], dtype=torch.int64)
        return self._session.step(hidden, torch.empty(0), order, step_id=uuid.uuid4().hex)

    def close(self) -> None:
        self._session.close()


class Told:
    """One of our servers with the policy ``told``: where it is sent, what it tells, and its gates."""

    def __init__(self, name: str, folder) -> None:
        self.name, self._folder = name, folder / name
        self._folder.mkdir()
        self._offset = 0

    @property
    def options(self) -> dict[str, str]:
        return {
            "policy": "told",
            "told_path": str(self._folder / "told"),
            "events_path": str(self._folder / "events"),
            "gate_dir": str(self._folder / "gates"),
        }

    def go(self, span: Span) -> None:
        (self._folder / "told.new").write_text(str(span))
        (self._folder / "told.new").rename(self._folder / "told")

    def hold(self, point: str) -> None:
        """Close a gate."""
        (self._folder / "gates").mkdir(exist_ok=True)
        (self._folder / "gates" / f"{point}.reached").unlink(missing_ok=True)
        (self._folder / "gates" / f"{point}.hold").touch()

    def wait_at(self, point: str) -> None:
        wait_for((self._folder / "gates" / f"{point}.reached").exists, DEADLINE_S, f"{self.name} at {point}")

    def release(self, point: str) -> None:
        (self._folder / "gates" / f"{point}.hold").unlink(missing_ok=True)

    def release_all(self) -> None:
        for hold in (self._folder / "gates").glob("*.hold"):
            hold.unlink()

    def rows(self, kind: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        rows, _ = read_events(self._folder / "events")
        return [row for row in rows if row["kind"] == kind and row["mono_s"] >= since_s]

    def next_reload(self, since_s: float) -> dict[str, Any]:
        """The first reload that ended after a moment."""
        return wait_for(lambda: self.rows("reloads", since_s), DEADLINE_S, f"a reload of {self.name}")[0]

    def rests_at(self, span: Span) -> bool:
        """Whether the last that it told is that it is online there."""
        state = self.rows("servers")[-1]
        return (state["state"], state["start"], state["end"]) == ("online", span.start, span.end)

    def next_state(self, since_s: float) -> dict[str, Any]:
        return wait_for(lambda: self.rows("servers", since_s), DEADLINE_S, f"a state of {self.name}")[0]

    def move(self, span: Span) -> dict[str, Any]:
        """Send it there; its reload."""
        since_s = time.monotonic()
        self.go(span)
        row = self.next_reload(since_s)
        self.next_state(since_s)
        return row
