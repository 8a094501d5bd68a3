"""The swarm at one moment, as it is shown live: from a run's rows as they come, or from one look at a DHT."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swarmlab.analysis.timeline import Event, events_of
from swarmlab.types import ServerState, SwarmView

KINDS = (
    "servers",
    "blocks",
    "balance",
    "faults",
    "failovers",
    "decisions",
    "reloads",
    "steps",
    "sessions",
    "outcomes",
)
DAMAGED = (KeyError, TypeError, ValueError)  # what a row without a column, or with nonsense in it, leads to
EVENTS = ("faults", "failovers", "decisions", "reloads")
KEPT_EVENTS = 50
RATE_S = 10.0  # steps per second are counted over so long
SPAN = re.compile(r"blocks (\d+):(\d+)")  # in the detail of a server that starts


@dataclass(frozen=True)
class Server:
    """:param start: None, as ``end``, while it is not known what it holds"""

    name: str
    state: str
    start: int | None = None
    end: int | None = None
    tps: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Frame:
    """What is shown at one moment.

    :param blocks_tps: throughput of each block in tokens/s; servers per block where ``unit`` says so
    :param numbers: names and values for the line below the strip
    """

    title: str
    blocks_tps: tuple[float, ...]
    unit: str
    servers: tuple[Server, ...]
    numbers: Mapping[str, str]
    events: tuple[Event, ...] = ()


@dataclass
class Live:
    """Takes a run's rows as they come; the arm that wrote last is the one that is shown."""

    t: float = 0.0
    arm: str = ""
    scenario: str = ""
    servers: dict[str, Server] = field(default_factory=dict)
    blocks: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    balance: Mapping[str, Any] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    damaged: int = 0
    _swarm_of: str = ""

    def take(self, kind: str, row: Mapping[str, Any]) -> None:
        """A damaged row is counted and left out: what it means for the run is for a judge to say."""
        try:
            self._take(kind, row)
        except DAMAGED:
            self.damaged += 1

    def _take(self, kind: str, row: Mapping[str, Any]) -> None:
        t = float(row.get("t") or 0.0)
        if t >= self.t:
            self.t, self.arm = t, row.get("arm") or self.arm
            self.scenario = row.get("scenario") or self.scenario
        if kind in ("servers", "blocks"):
            self._begin_arm(row.get("arm") or "")
        if kind == "servers":
            self._server(row)
        elif kind == "blocks":
            self.blocks[int(row["block"])] = row
        elif kind == "balance":
            self.balance = row
        elif kind == "steps":
            self.steps.append(t)
        elif kind in ("sessions", "outcomes"):
            self.outcomes[str(row.get("outcome"))] += 1
        if kind in EVENTS:
            found = events_of(kind, row)
            self.events.extend(found)
            self.counts[kind] += len(found)

    def frame(self, title: str) -> Frame:
        """The moment of the last row."""
        shown = self._blocks()
        return Frame(
            f"{title}, {self.t:.0f} s{''.join(f', {one}' for one in (self.scenario, self.arm) if one)}",
            *shown, tuple(self.servers.values()), self._numbers(), tuple(self.events),
        )  # fmt: skip

    def _begin_arm(self, arm: str) -> None:
        """An arm with servers of its own has a swarm of its own."""
        if arm and arm != self._swarm_of:
            self._swarm_of = arm
            self.servers, self.blocks, self.balance = {}, {}, {}

    def _server(self, row: Mapping[str, Any]) -> None:
        name = row["server"]
        known = self.servers.get(name, Server(name, ""))
        told = SPAN.search(row.get("detail") or "")
        start, end = (int(told[1]), int(told[2])) if told else (known.start, known.end)
        if row.get("start") is not None:
            start, end = row["start"], row["end"]
        self.servers[name] = Server(name, row["state"], start, end, row.get("throughput_tps"))

    def _blocks(self) -> tuple[tuple[float, ...], str]:
        if self.blocks:
            rows = [self.blocks.get(block, {}) for block in range(max(self.blocks) + 1)]
            # what is served, where somebody looked from outside; or else what is announced
            name = "served_tps" if any("served_tps" in row for row in rows) else "announced_tps"
            return tuple(float(row.get(name) or 0.0) for row in rows), f"tokens/s {name.partition('_')[0]}"
        held = [one for one in self.servers.values() if one.end is not None and one.state == "online"]
        n_blocks = max((one.end or 0 for one in self.servers.values()), default=0)
        counts = tuple(
            float(sum((one.start or 0) <= block < (one.end or 0) for one in held))
            for block in range(n_blocks)
        )
        return counts, "servers per block"

    def _numbers(self) -> dict[str, str]:
        numbers: dict[str, str] = {}
        if self.balance:
            numbers["swarm tokens/s"] = _number(self.balance.get("swarm_tps"))
            numbers["share of the optimum"] = _number(self.balance.get("quality_optimal"))
            numbers["moving"] = _number(self.balance.get("n_moving"))
        recent = [t for t in self.steps if t > self.t - RATE_S]
        if self.steps:
            numbers["client steps/s"] = _number(len(recent) / min(RATE_S, max(self.t, 1.0)))
        for kind, words in {"faults": "faults", "failovers": "failovers", "decisions": "decisions to move",
                            "reloads": "reloads"}.items():  # fmt: skip
            if self.counts[kind]:
                numbers[words] = str(self.counts[kind])
        if self.outcomes:
            numbers["ended"] = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()))
        if self.damaged:
            numbers["damaged rows left out"] = str(self.damaged)
        return numbers


def frame_of_view(view: SwarmView, title: str, problems: int = 0) -> Frame:
    """One look at a DHT.

    :param problems: records that were left out or mended
    """
    blocks = [0.0] * view.n_blocks
    for record in view.serving():
        for block in record.span:
            blocks[block] += record.throughput_tps
    servers = tuple(
        Server(
            record.peer_id[-8:], record.state.value, record.span.start, record.span.end, record.throughput_tps,
            _note(record.cache_tokens_left, record.expires_at_s - view.seen_at_s),
        )
        for record in sorted(view.servers, key=lambda record: (record.span, record.peer_id))
    )  # fmt: skip
    states = Counter(record.state for record in view.servers)
    numbers = {
        "swarm tokens/s": _number(min(blocks)),
        "serving": str(states[ServerState.ONLINE]),
        "loading": str(states[ServerState.JOINING]),
        "blocks that nobody serves": str(len(view.uncovered())),
        "records left out or mended": str(problems),
    }
    return Frame(title, tuple(blocks), "tokens/s announced", servers, numbers)


def _note(cache_tokens: int | None, expires_in_s: float) -> str:
    cache = "" if cache_tokens is None else f"cache {cache_tokens:,}, "
    return f"{cache}record expires in {expires_in_s:.0f} s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
