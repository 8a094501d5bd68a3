"""Records one arm's swarm from outside: its DHT once a second, what its servers tell, when each scenario began."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from swarmlab.bridge.events import read_events
from swarmlab.errors import SwarmFailed
from swarmlab.placement.layout import block_sums, layout_of
from swarmlab.placement.optimum import best_placement
from swarmlab.placement.problem import Placement, Problem
from swarmlab.placement.quality import appendix_d_quality, petals_quality
from swarmlab.record.writer import HistoryWriter
from swarmlab.scenarios.rebalance_clients import Delivered
from swarmlab.scenarios.rebalance_plan import Place
from swarmlab.swarm.deploy import Swarm
from swarmlab.swarm.server import ServerHandle
from swarmlab.types import ServerRecord, ServerState, SwarmView

TAIL_S = 0.1
SOLVER_S = 5.0


def warm_up(places: Mapping[str, Place], n_blocks: int) -> None:
    """Have compiled code built before a swarm is watched: for the first time that takes seconds."""
    view = SwarmView(
        n_blocks, tuple(ServerRecord(place.name, place.span, place.tps) for place in places.values())
    )
    rng = np.random.default_rng(0)
    for name in places:
        petals_quality(view, name, rng)
    appendix_d_quality(view, rng)
    best_of(list(places.values()), n_blocks)


def best_of(places: Sequence[Place], n_blocks: int) -> Placement:
    """The best placement of servers, wherever they are now."""
    task = Problem(
        n_blocks,
        tuple(place.name for place in places),
        np.array([place.span.length for place in places], dtype=np.int64),
        np.array([place.tps for place in places], dtype=np.float64),
        np.zeros(len(places), dtype=np.int64),
        np.zeros(n_blocks),
    )
    return best_placement(task, time_limit_s=SOLVER_S, kicks=50)


class Recording:
    """One arm in one swarm.

    :param places: all servers that may be in the swarm, by name
    :param scenario: the one under way; changed by :meth:`phase`
    """

    def __init__(
        self,
        history: HistoryWriter,
        arm: str,
        swarm: Swarm,
        places: Mapping[str, Place],
        delivered: Delivered,
        scenario: str,
        seed: int,
    ) -> None:
        self.arm, self.scenario, self.delivered = arm, scenario, delivered
        self._history, self._swarm, self._places = history, swarm, places
        self._hidden: set[str] = set()
        self._rng = np.random.default_rng(seed)
        self._best: dict[tuple[str, ...], Placement] = {}
        self._seen: dict[str, tuple[str, str]] = {}
        self._offsets: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.told: list[dict[str, Any]] = []

    @property
    def _servers(self) -> dict[str, ServerHandle]:
        """A copy: servers join while another thread looks."""
        return dict(self._swarm.servers)

    def write(self, kind: str, *, at_s: float | None = None, **row: Any) -> None:
        self._history.write(kind, self.arm, at_s=at_s, scenario=self.scenario, **row)

    @contextmanager
    def phase(self, scenario: str) -> Iterator[None]:
        """From here on rows are of this scenario."""
        self.scenario = scenario
        self.write("phases", moment="begin")
        yield
        self.write("phases", moment="end")

    @contextmanager
    def hiding(self, name: str) -> Iterator[None]:
        """While records of a server are held back that serves on."""
        self._hidden.add(name)
        try:
            yield
        finally:
            self._hidden.discard(name)

    def record_of(self, name: str) -> ServerRecord | None:
        """What the DHT shows of a server now."""
        handle = self._swarm.servers.get(name)
        return None if handle is None else self._swarm.snapshot().get(handle.peer_id)

    def look(self) -> None:
        """One sample: rows of ``blocks`` and ``balance``, and of ``servers`` whose records have changed.

        A DHT that does not answer in time is a sample less; the judge counts them.
        """
        at_s = time.monotonic()
        try:
            view = self._swarm.snapshot()
        except SwarmFailed as error:
            self.write("logs", source="looks", level="warning", line=str(error))
            return
        names = {handle.peer_id: name for name, handle in self._servers.items()}
        known = SwarmView(
            view.n_blocks, tuple(record for record in view.servers if record.peer_id in names), view.seen_at_s
        )
        self._note_changes(at_s, known, names)
        serving = self._serving(known)
        served, count = self._sums(serving, view.n_blocks), np.zeros(view.n_blocks, dtype=np.int64)
        for place in serving:
            count[place.span.start : place.span.end] += 1
        announced, rate_tps = layout_of(known).throughput_tps, self.delivered.rate_tps()
        for block in range(view.n_blocks):
            self.write(
                "blocks",
                at_s=at_s,
                block=block,
                announced_tps=float(announced[block]),
                served_tps=float(served[block]),
                delivered_tps=rate_tps,
                n_servers=int(count[block]),
            )
        self._write_balance(at_s, known, float(served.min()), float(announced.min()), len(serving), rate_tps)

    def tail(self) -> None:
        """Take over what servers have told since the last time."""
        with self._lock:
            for name, path in self._event_files().items():
                rows, self._offsets[path] = read_events(path, self._offsets.get(path, 0))
                for row in rows:
                    self._take(name, row)

    def moved(self, *, since_s: float) -> list[dict[str, Any]]:
        """Decisions to move that servers have told since then (``time.monotonic``)."""
        self.tail()
        return [
            row
            for row in self.told
            if row["kind"] == "decisions"
            and row["mono_s"] >= since_s
            and row["moved"]
            and row.get("phase") not in ("join", "choose")
        ]

    def reloaded(self, name: str, *, since_s: float) -> bool:
        """Whether a server has finished a reload since then."""
        self.tail()
        return any(
            row["kind"] == "reloads" and row["mono_s"] >= since_s and row["server"] == name
            for row in self.told
        )

    def _event_files(self) -> dict[str, Path]:
        options = {name: dict(handle.spec.options) for name, handle in self._servers.items()}
        return {name: Path(known["events_path"]) for name, known in options.items() if "events_path" in known}

    def _take(self, name: str, row: dict[str, Any]) -> None:
        self.told.append({**row, "server": name})
        fields = {
            key: value for key, value in row.items() if key not in ("kind", "mono_s", "server", "t", "arm")
        }
        fields.pop("scenario", None)
        if row["kind"] == "logs":
            fields["source"] = name
        self.write(row["kind"], at_s=row["mono_s"], server=name, **fields)

    def _note_changes(self, at_s: float, view: SwarmView, names: Mapping[str, str]) -> None:
        shown = {names[record.peer_id]: (record.state.value, str(record.span)) for record in view.servers}
        gone = dict.fromkeys(self._seen.keys() - shown.keys(), ("unseen", ""))
        for name, (state, span) in {**shown, **gone}.items():
            if self._seen.get(name) == (state, span):
                continue
            self._seen[name] = (state, span)
            start, _, end = span.partition(":")
            where = {"start": int(start), "end": int(end)} if span else {"start": None, "end": None}
            handle = self._swarm.servers[name]
            self.write(
                "servers", at_s=at_s, server=name, peer=handle.peer_id, state=state, source="dht", **where
            )

    def _serving(self, view: SwarmView) -> list[Place]:
        """Servers that can serve requests now: alive, and ONLINE or known to be merely unseen."""
        serving = []
        for name, handle in self._servers.items():
            record = view.get(handle.peer_id)
            place = self._places[name]
            if not handle.alive or handle.state == "stopped":
                continue
            if record is not None and record.state is ServerState.ONLINE:
                serving.append(Place(name, record.span, place.tps, place.free))
            elif record is None and name in self._hidden:
                serving.append(place)
        return serving

    @staticmethod
    def _sums(serving: list[Place], n_blocks: int) -> np.ndarray:
        return block_sums(
            np.array([place.span.start for place in serving], dtype=np.int64),
            np.array([place.span.end for place in serving], dtype=np.int64),
            np.array([place.tps for place in serving], dtype=np.float64),
            n_blocks,
        )

    def _write_balance(
        self,
        at_s: float,
        view: SwarmView,
        served: float,
        announced: float,
        n_serving: int,
        rate: float | None,
    ) -> None:
        alive = sorted(name for name, handle in self._servers.items() if handle.alive)
        best = self._optimum(alive, view.n_blocks)
        self.write(
            "balance",
            at_s=at_s,
            swarm_tps=served,
            announced_swarm_tps=announced,
            delivered_tps=rate,
            quality_petals=self._petals_quality(view),
            quality_appendix_d=appendix_d_quality(view, self._rng).share if view.servers else None,
            quality_optimal=served / best.swarm_tps if best.swarm_tps > 0 else None,
            best_found_tps=best.swarm_tps,
            optimal_tps=best.bound_tps,
            bound_gap=best.gap,
            n_active=len(alive),
            n_moving=len(alive) - n_serving,
        )

    def _petals_quality(self, view: SwarmView) -> float | None:
        """The least that any server would compute if it looked now; None if none would compute anything."""
        found = [petals_quality(view, record.peer_id, self._rng) for record in view.servers]
        return min((quality.share for quality in found if quality is not None), default=None)

    def _optimum(self, alive: list[str], n_blocks: int) -> Placement:
        """Of the servers that are alive, wherever they are now."""
        if (key := tuple(alive)) not in self._best:
            self._best[key] = best_of([self._places[name] for name in alive], n_blocks)
        return self._best[key]
