"""One client of a soak: gives its process one session after another, and records what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from swarmlab.channel import Channel, ChannelClosed, Message
from swarmlab.record.writer import HistoryWriter
from swarmlab.swarm.deploy import Swarm
from swarmlab.workload.requests import Bounds, Request, draw_request

CONNECT_S = 60.0
SCENARIO = "soak"
EVENTS = {
    "step": "steps",
    "failover": "failovers",
    "opening": "openings",
    "log": "logs",
    "session": "sessions",
}  # what the process says, and the kind of history that becomes


@dataclass
class SoakClient:
    """A client that is replaced by a new process if it dies or hangs.

    :param name: unlike that of any other
    :param number: of the arm's clients, from 0
    :param args: for the process
    :param until_s: when to begin no more sessions (``time.monotonic``)
    :param deadline_s: for one session; what takes longer is a hang
    """

    swarm: Swarm
    arm: str
    name: str
    number: int
    history: HistoryWriter
    args: dict[str, Any]
    bounds: Bounds
    seed: int
    until_s: float
    deadline_s: float
    on_end: Callable[[SoakClient], None]
    sessions: int = field(default=0, init=False)
    tokens_wrong: int = field(default=0, init=False)
    failure: str | None = field(default=None, init=False)
    peers: frozenset[str] = field(default=frozenset(), init=False)  # that serve it now
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _request: Request | None = field(default=None, init=False)
    _asked_s: float = field(default=0.0, init=False)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        thread.start()
        return thread

    def leave(self) -> None:
        """Record nothing more; the swarm is being torn down."""
        self._over.set()

    def _run(self) -> None:
        try:
            self._run_processes()
        except Exception as error:  # noqa: BLE001 - on a thread, nobody else would hear of it
            self.failure = f"{self.name}: {type(error).__name__}: {error}"
        if not self._over.is_set():
            self.on_end(self)

    def _run_processes(self) -> None:
        n_processes = 0
        while time.monotonic() < self.until_s and not self._over.is_set():
            name = f"{self.name}-{n_processes}"
            n_processes += 1
            child = self.swarm.spawn("clients.soak", name, {**self.args, "name": name})
            try:
                self._follow(child.channel(CONNECT_S))
            except (ChannelClosed, TimeoutError) as error:
                self._lost(error)
            finally:
                self.swarm.kill_child(child)
                child.close()

    def _follow(self, channel: Channel) -> None:
        """Serve one process until it is done.

        :raises ChannelClosed: if it died
        :raises TimeoutError: if it said nothing of importance for ``deadline_s``
        """
        self._asked_s = time.monotonic() + CONNECT_S  # it loads its model first
        while True:
            message = channel.recv(max(0.0, self._asked_s + self.deadline_s - time.monotonic()))
            if message["event"] == "done":
                return
            if message["event"] == "next":
                channel.send(self._next())
            elif message["event"] == "chain":
                self.peers = frozenset(message["peers"])
            else:
                self._record(message)

    def _next(self) -> dict[str, Any]:
        self._asked_s, self.peers = time.monotonic(), frozenset()
        if self._asked_s >= self.until_s:
            return {"stop": True}
        request = self._request = draw_request(self.bounds, self.seed, self.name, self.sessions)
        self.sessions += 1
        return {
            "session": self.sessions - 1,
            "work": asdict(request),
            "batch": request.batch,
            "prompt_tokens": request.prompt_tokens,
            "max_length": request.max_length,
            "seed": request.seed,
        }

    def _record(self, message: Message) -> None:
        kind = EVENTS[message.pop("event")]
        at_s = message.pop("at_s")
        if kind in ("failovers", "openings"):
            message["spans"], message["peers_tried"] = message.pop("replacements"), message.pop("attempts")
        if kind == "logs":
            message["source"] = self.name
        if kind == "sessions":
            message |= self._asked_for()
            self.tokens_wrong += message["tokens_wrong"]
            self._request = None
        self._write(kind, at_s, message)

    def _lost(self, error: Exception) -> None:
        """Record the session that a process did not survive, if it was in one."""
        outcome = "hang" if isinstance(error, TimeoutError) else "lost"
        row = {"session": self.sessions - 1, "outcome": outcome, "error": f"{self.name}: {error}"}
        if self._request is not None:
            self._write("sessions", time.monotonic(), {**row, **self._asked_for()})
        else:
            self._write(
                "logs", time.monotonic(), {"source": self.name, "level": "error", "line": row["error"]}
            )
        self._request = None

    def _asked_for(self) -> dict[str, Any]:
        request = self._request
        assert request is not None
        return {
            "work": request.kind,
            "batch": request.batch,
            "prompt_tokens": request.prompt_tokens,
            "new_tokens": request.new_tokens,
        }

    def _write(self, kind: str, at_s: float, row: dict[str, Any]) -> None:
        if not self._over.is_set():
            self.history.write(kind, self.arm, at_s=at_s, scenario=SCENARIO, client=self.number, **row)
