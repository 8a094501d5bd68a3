"""Watches an unmodified petals server from outside: what it decides, what it loads, how long it is out of service.

Petals' own code does all the work; what stands round it only reads clocks and tells. Every server that reloads as
petals does can be watched this way, ours has its own account.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from petals.server import server as petals_server
from petals.utils import convert_block as petals_convert

from swarmlab.bridge.blocks import slow_disk
from swarmlab.bridge.blocks.stopwatch import Stopwatch
from swarmlab.bridge.events import EventLog
from swarmlab.bridge.serving.gates import Gates
from swarmlab.types import Span

DECIDED, ANNOUNCE = "decided", "announce"
POLL_S = 0.05
PEFT = ("create_lora_adapter", "load_peft", "add_adapter_to_block")


@dataclass
class Watch:
    """What is known of the one server of this process.

    :param policy: name of whatever answers its questions
    :param span: what it holds; None before its first choice and while it holds nothing
    """

    events: EventLog
    gates: Gates
    policy: str
    span: Span | None = None
    old: Span | None = None
    offline_at_s: float | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def decided(self, *, moved: bool, target: Span | None, reason: str, gain_tps: float | None) -> None:
        """Tell a decision, and let the orchestrator hold one that is for a move."""
        self.events.emit(
            "decisions",
            phase="check",
            policy=self.policy,
            moved=moved,
            old=_words(self.span),
            target=_words(target),
            chosen=None,
            reason=reason,
            predicted_gain=gain_tps,
        )
        if moved:
            self.gates.pass_through(DECIDED)

    def chose(self, blocks: Any) -> None:
        """Tell what it will load."""
        new = Span(min(blocks), max(blocks) + 1)
        self.events.emit(
            "decisions",
            phase="join" if self.old is None else "choose",
            policy=self.policy,
            moved=True,
            old=_words(self.old),
            target=str(new),
            chosen=str(new),
            reason="",
            predicted_gain=None,
        )

    def stopping(self) -> None:
        """It is about to announce that it is offline."""
        self.offline_at_s, self.old, self.span = time.monotonic(), self.span, None

    def serves(self, span: Span, throughput_tps: float) -> None:
        """Everything is loaded and it takes requests: the account of the reload is closed."""
        old, out_s = self.old, None
        if self.offline_at_s is not None:
            out_s = time.monotonic() - self.offline_at_s
        self.events.emit(
            "reloads",
            old_start=old.start if old else None,
            old_end=old.end if old else None,
            new_start=span.start,
            new_end=span.end,
            kept=0,
            loaded=span.length,
            redundant=old.overlap(span) if old else 0,
            no_op=span == old,
            out_of_service_s=out_s,
            lost_block_s=None if out_s is None else out_s * span.length,
            throughput_tps=throughput_tps,
            completed=True,
            **self.stopwatch.take(),
        )
        self.span = span


def watch(server_class: Any, found: Watch) -> Any:
    """A subclass of petals' ``Server`` (or of ours that reloads as it does) that tells what it does.

    :param found: filled in as the server lives
    """

    class Watched(server_class):
        def _choose_blocks(self) -> Any:
            blocks = super()._choose_blocks()
            found.chose(blocks)
            return blocks

        def _should_choose_other_blocks(self) -> bool:
            with _LastLine("petals.server.block_selection") as line:
                moved = super()._should_choose_other_blocks()
            target, gain_tps = getattr(self, "decided_target", None), getattr(self, "decided_gain_tps", None)
            reason = getattr(self, "decided_reason", "") or line.text
            found.decided(moved=moved, target=target, reason=reason, gain_tps=gain_tps)
            return moved

    class WatchedContainer(petals_server.ModuleContainer):
        @classmethod
        def create(cls, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            blocks = kwargs["block_indices"]
            container = super().create(**kwargs)
            found.serves(Span(min(blocks), max(blocks) + 1), kwargs["server_info"].throughput)
            return container

        def shutdown(self) -> None:
            found.stopping()
            super().shutdown()

    entry: Any = petals_server
    entry.ModuleContainer = WatchedContainer
    _watch_loading(found.stopwatch)
    entry.declare_active_modules = _held(entry.declare_active_modules, found.gates)
    return Watched


def slow_down_when(path: Path, delay_s: float) -> None:
    """From the moment that the file is there, every block takes so much longer to read."""

    def wait() -> None:
        while not path.exists():
            time.sleep(POLL_S)
        slow_disk.install(delay_s)

    threading.Thread(target=wait, name="slow-disk", daemon=True).start()


def _watch_loading(stopwatch: Stopwatch) -> None:
    from petals.utils import peft

    entry, convert, adapters = _any(petals_server), _any(petals_convert), _any(peft)
    entry.load_pretrained_block = stopwatch.reading(entry.load_pretrained_block)
    entry.convert_block = stopwatch.timed("convert", entry.convert_block)
    convert.quantize_module = stopwatch.timed("quantize", convert.quantize_module)
    for name in PEFT:
        setattr(adapters, name, stopwatch.timed("adapter", getattr(adapters, name)))


def _held(declare: Callable[..., Any], gates: Gates) -> Callable[..., Any]:
    """Announcements that the orchestrator can hold back: the server serves on, but its records lapse."""

    def declare_later(*args: Any, expiration_time: float, **kwargs: Any) -> Any:
        waited_s = gates.pass_through(ANNOUNCE)
        return declare(*args, expiration_time=expiration_time + waited_s, **kwargs)

    return declare_later


class _LastLine(logging.Handler):
    """The last line that a logger wrote inside the ``with`` block: petals tells its balance quality only there."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger, self.text = logging.getLogger(name), ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def _any(module: Any) -> Any:
    return module


def _words(span: Span | None) -> str | None:
    return None if span is None else str(span)
