"""Seconds and bytes of loading, counted in functions of petals that are wrapped for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swarmlab.bridge.blocks import slow_disk


@dataclass
class Stopwatch:
    """Seconds spent in parts of loading since the last :meth:`take`, and bytes read.

    A part inside itself (quantizing calls itself for every submodule) counts once.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    bytes_read: int = 0
    _running: set[str] = field(default_factory=set)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with its seconds added to ``name``."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            if name in self._running:
                return function(*args, **kwargs)
            self._running.add(name)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._running.discard(name)
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

        return measured

    def reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same for reading a block, with the bytes."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            with slow_disk.watched_reads() as reads:
                block = function(*args, **kwargs)
            self.bytes_read += sum(read.n_bytes for read in reads)
            return block

        return self.timed("read", measured)

    def take(self) -> dict[str, Any]:
        """The columns of ``reloads``; begins anew."""
        spent, self.seconds = self.seconds, {}
        bytes_read, self.bytes_read = self.bytes_read, 0
        quantize_s, adapter_s = spent.get("quantize", 0.0), spent.get("adapter", 0.0)
        return {
            "bytes_read": bytes_read,
            "read_s": spent.get("read", 0.0),
            "quantize_s": quantize_s,
            "adapter_s": adapter_s,
            "to_device_s": max(0.0, spent.get("convert", 0.0) - quantize_s - adapter_s),
        }
