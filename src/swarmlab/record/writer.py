"""Append-only history of a run: one JSON object per line, one file per kind, one monotonic clock."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import IO, Any, Self

# The columns that readers may rely on; a row may carry more. Every row also has ``t`` and ``arm``.
KINDS: dict[str, tuple[str, ...]] = {
    "steps": ("scenario", "session", "token", "phase", "seconds", "retries", "token_ids"),
    "faults": (
        "scenario", "fault", "target", "peer", "span_start", "span_end", "stage", "at_token", "ok", "detail",
    ),
    "failovers": (
        "scenario", "session", "token", "cause", "detect_s", "reroute_s", "connect_s", "replay_s", "total_s",
        "tokens_replayed", "requests", "failed", "spans", "peers_tried",
    ),
    "openings": (
        "scenario", "client", "session", "token", "reroute_s", "connect_s", "replay_s", "total_s", "requests", "spans",
    ),
    "floors": ("scenario", "repeat", "tokens", "connect_s", "prefill_s", "calm_s", "spans"),
    "outcomes": (
        "scenario", "outcome", "tokens", "tokens_expected", "tokens_identical_ratio", "max_abs_diff",
        "max_abs_diff_plain", "error", "elapsed_s", "text", "seen_broken_input_cache",
    ),
    "sessions": (
        "scenario", "client", "session", "work", "batch", "prompt_tokens", "new_tokens", "outcome", "steps", "tokens",
        "tokens_expected", "tokens_wrong", "max_abs_diff", "allowed_diff", "recoveries", "stalls", "step_s_median",
        "step_s_max", "ties", "elapsed_s", "history_bytes", "rss_bytes", "fds", "threads", "pid", "error",
    ),
    "leaks": ("scenario", "moment", "processes", "sockets", "files"),
    "blocks": ("block", "announced_tps", "delivered_tps", "n_servers"),
    "delivered": ("server", "start", "end", "tokens", "seconds"),
    "balance": ("swarm_tps", "quality_petals", "quality_optimal", "optimal_tps", "bound_gap", "n_moving"),
    "decisions": ("server", "policy", "moved", "old", "target", "chosen", "reason", "predicted_gain"),
    "reloads": (
        "server", "old_start", "old_end", "new_start", "new_end", "kept", "loaded", "redundant", "no_op",
        "bytes_read", "read_s", "quantize_s", "adapter_s", "to_device_s", "out_of_service_s",
    ),
    "views": ("scenario", "n_blocks", "servers", "seen_at_s", "problems"),
    "speed": (
        "scenario", "repeat", "servers", "simulated_s", "wall_s", "cpu_s", "events", "checks", "moves", "rss_bytes",
        "idle_rss_bytes", "swarm_tps_over_mean",
    ),
    "servers": ("scenario", "server", "peer", "state", "start", "end", "pid"),
    "phases": ("scenario", "moment"),
    "logs": ("scenario", "source", "level", "line"),
}  # fmt: skip


class HistoryWriter:
    """Writes rows to ``folder/<kind>.jsonl``, each flushed at once, from any thread.

    A number that is not finite is written as null ("not available"): a run is never lost to one such value,
    and the judge works from the stored arrays, where a NaN still counts as wrong.

    :param folder: the run's history folder; it must exist
    :param start_s: reading of ``time.monotonic`` that is t = 0; None means now
    """

    def __init__(self, folder: Path, *, start_s: float | None = None) -> None:
        self.folder = folder
        self.start_s = time.monotonic() if start_s is None else start_s
        self._files: dict[str, IO[str]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def write(self, kind: str, arm: str, *, at_s: float | None = None, **fields: Any) -> None:
        """Append one row.

        :param at_s: ``time.monotonic`` reading of when it happened, from any process of this machine; None means now
        :raises ValueError: if the kind is unknown, a field is named ``t``, or the writer is closed
        :raises TypeError: if a field is neither JSON, an array, an enum, a path nor a dataclass
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of history; known: {', '.join(KINDS)}")
        if "t" in fields:
            raise ValueError("t is set by the writer; pass at_s to say when something happened")
        row = {"arm": arm, **{name: json_safe(value) for name, value in fields.items()}}
        with self._lock:
            if self._closed:
                raise ValueError("the history is closed")
            happened_s = time.monotonic() if at_s is None else at_s
            line = json.dumps({"t": round(happened_s - self.start_s, 6), **row}, allow_nan=False)
            if kind not in self._files:
                self._files[kind] = (self.folder / f"{kind}.jsonl").open("a", encoding="utf-8")
            self._files[kind].write(line + "\n")
            self._files[kind].flush()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for file in self._files.values():
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def json_safe(value: Any) -> Any:
    """The value in JSON's own types; numbers that are not finite become None.

    :raises TypeError: if there is no plain way to write it
    """
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: json_safe(getattr(value, item.name)) for item in dataclasses.fields(value)}
    to_list = getattr(value, "tolist", None)  # numpy and torch, arrays and scalars
    if callable(to_list):
        return json_safe(to_list())
    raise TypeError(f"cannot write {type(value).__name__} to the history")


# The first that fits: an enum may also be a string, a bool is also an int.
_CONVERSIONS: tuple[tuple[tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((Enum,), lambda value: json_safe(value.value)),
    ((bool, str, NoneType), lambda value: value),
    ((int,), int),
    ((float,), lambda value: float(value) if math.isfinite(value) else None),
    ((Mapping,), lambda value: {str(key): json_safe(item) for key, item in value.items()}),
    ((list, tuple), lambda value: [json_safe(item) for item in value]),
    ((set, frozenset), lambda value: sorted(json_safe(item) for item in value)),
    ((Path,), str),
)
