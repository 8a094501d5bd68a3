"""Reads the golden cases: a few servers, what one or several reads of the DHT bring back, and who should do what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from swarmlab.types import MAX_THROUGHPUT_TPS, ServerRecord, ServerState, Span, SwarmView
from tests.placement.petals_views import Announcement, peer_name

FOLDER = Path(__file__).parents[1] / "golden" / "placement"


def span(text: str) -> Span:
    start, end = text.split(":")
    return Span(int(start), int(end))


@dataclass(frozen=True)
class Case:
    name: str
    content: Mapping[str, Any]

    @property
    def n_blocks(self) -> int:
        return self.content["blocks"]

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        return self.content["servers"]

    def span(self, server: str) -> Span:
        return span(self.servers[server]["span"])

    def throughput_tps(self, server: str) -> float:
        return min(float(self.servers[server]["tps"]), MAX_THROUGHPUT_TPS)

    def state(self, server: str) -> ServerState:
        return ServerState(self.servers[server].get("state", "online"))

    def as_stored(self, look: int, step: Mapping[str, Any]) -> list[Announcement]:
        """What the original reads at a look, if by then the servers in ``step`` went offline or began to load."""
        gone, loading = step.get("offline", []), step.get("joining", {})
        found = []
        for server, given in self.servers.items():
            if server in gone:
                continue
            state = ServerState.JOINING if server in loading else self.state(server)
            held = span(loading.get(server, given["span"]))
            spans = [span(given["old_records"])] if "old_records" in given else []
            found += [
                Announcement(
                    peer_name(server),
                    self._read(server, one, look),
                    float(given["tps"]),
                    state,
                    one if self.content.get("ranges", True) else None,
                )
                for one in [*spans, held]
            ]
        return found

    def as_seen(self, look: int) -> SwarmView:
        """The view that our snapshot of the same read gives: the newest record of each peer, numbers bounded."""
        records = []
        for server, given in self.servers.items():
            blocks = self._read(server, self.span(server), look)
            if not blocks:
                continue
            held = self.span(server) if self.content.get("ranges", True) else Span(blocks[0], blocks[-1] + 1)
            lapses = given.get("lapses_at_s", float("inf"))
            records.append(
                ServerRecord(
                    server, held, self.throughput_tps(server), self.state(server), expires_at_s=lapses
                )
            )
        return SwarmView(self.n_blocks, tuple(records), seen_at_s=float(self.content["looks"][look]["at_s"]))

    def _read(self, server: str, held: Span, look: int) -> tuple[int, ...]:
        unread = self.content["looks"][look].get("unread", {}).get(server, [])
        return () if unread == "all" else tuple(block for block in held if block not in unread)


def cases() -> list[Case]:
    paths = sorted(FOLDER.glob("*.yaml"))
    return [Case(path.stem, yaml.safe_load(path.read_text())) for path in paths]


def steps(part: str) -> Iterator[tuple[Case, Mapping[str, Any]]]:
    """All expectations of one part (`original` or `ours`) of all cases."""
    for case in cases():
        for step in case.content[part]:
            yield case, step
