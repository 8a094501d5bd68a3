"""What one reload of our server costs, counted while it goes on. No petals here."""

from __future__ import annotations

import statistics
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from swarmlab.placement.cost import REPORTED_S_PER_BLOCK, LoadCost

if TYPE_CHECKING:
    from swarmlab.bridge.blocks.loader import LoadedBlock
    from swarmlab.placement.reload_plan import MemoryPlan
    from swarmlab.types import Span

MOVED, CANCELLED, ROLLED_BACK, FAILED = "moved", "cancelled", "rolled_back", "failed"
MENDED = "mended"  # what a failed move had lost is there again
PHASES = ("intent", "load", "check", "announce", "drain", "drop")
REMEMBERED_LOADS = 32


class LoadMeter:
    """Seconds that blocks took to load lately: the cost model of the next decision."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED_LOADS)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    @property
    def s_per_block(self) -> float:
        """The median; what petals' issue 389 reports before anything has been measured."""
        return statistics.median(self._seconds) if self._seconds else REPORTED_S_PER_BLOCK

    def cost(self) -> LoadCost:
        return LoadCost(s_per_block=self.s_per_block, s_per_move=0.0, keeps_overlap=True)


class ReloadAccount:
    """One change of span, or the first load (``old`` is None), from the decision on.

    :param new: where it should lead
    :param serving: blocks served when it begins
    """

    def __init__(self, old: Span | None, new: Span, serving: Span | None) -> None:
        self.old, self.new, self._width = old, new, new.length
        self._began_s = self._counted_s = time.monotonic()
        self._held = serving
        self._serving = 0 if serving is None else serving.length
        self._seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._blocks: list[int] = []
        self._parts: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._lost_block_s = self._out_s = 0.0
        self._sessions = self._broken = 0

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds what the ``with`` block takes to a phase of the reload."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] += time.monotonic() - started

    def loaded(self, block: int, loaded: LoadedBlock) -> None:
        """A block has been loaded."""
        self._blocks.append(block)
        self._sources[loaded.source] += 1
        for part in ("bytes_read", "read_s", "quantize_s", "adapter_s", "to_device_s"):
            self._parts[part] += getattr(loaded, part)

    def serves(self, span: Span | None) -> None:
        """From now on these blocks are served."""
        self._count()
        self._serving = 0 if span is None else span.length

    def drained(self, sessions: int, left: int) -> None:
        """Sessions used blocks that were to be dropped; ``left`` of them had not finished in time."""
        self._sessions, self._broken = self._sessions + sessions, self._broken + left

    def row(
        self, outcome: str, at: Span, reason: str, throughput_tps: float, plan: MemoryPlan | None
    ) -> dict[str, Any]:
        """The account as a row of ``reloads``; ``out_of_service_s`` is the time in which no block was served.

        :param at: where the server ended up
        """
        self._count()
        old, held = self.old, self._held
        return {
            "old_start": old.start if old else None,
            "old_end": old.end if old else None,
            "new_start": at.start,
            "new_end": at.end,
            "target": str(self.new),
            "kept": held.overlap(self.new) if held else 0,
            "loaded": len(self._blocks),
            "redundant": sum(held is not None and block in held for block in self._blocks),
            "no_op": False,  # a target that equals the span is no move, and never gets here
            **{part: self._parts[part] for part in ("bytes_read", "read_s", "quantize_s", "adapter_s", "to_device_s")},
            "sources": dict(self._sources),
            "out_of_service_s": self._out_s,
            "lost_block_s": self._lost_block_s,
            "lost_tps_s": self._lost_block_s * throughput_tps,
            "throughput_tps": throughput_tps,
            **{f"{phase}_s": seconds for phase, seconds in self._seconds.items()},
            "total_s": time.monotonic() - self._began_s,
            "measured_s_per_block": self._seconds["load"] / len(self._blocks) if self._blocks else None,
            "mode": None if plan is None else plan.mode.value,
            "prefetched": plan is not None and plan.mode.value == "prefetch",
            "needed_bytes": None if plan is None else plan.needed_bytes,
            "free_bytes": None if plan is None else plan.free_bytes,
            "sessions_open": self._sessions,
            "sessions_broken": self._broken,
            "completed": outcome in (MOVED, MENDED),
            "outcome": outcome,
            "reason": reason,
        }  # fmt: skip

    def _count(self) -> None:
        now_s = time.monotonic()
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        self._lost_block_s += max(0, self._width - self._serving) * passed_s
        self._out_s += passed_s if self._serving == 0 else 0.0
