"""What a server process tells its orchestrator: rows of the history, one JSON line each, in a file that is tailed.

A server may be killed at any moment, so each line is handed to the system at once, in one write; a reader has to
expect no more than a last line without its end.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from swarmlab.record.writer import KINDS, json_safe


class EventLog:
    """Appends rows of the kinds of ``swarmlab.record.writer.KINDS`` to a file; safe from any thread.

    :param path: made if it is not there; appended to otherwise. None: rows are checked and thrown away.
    """

    def __init__(self, path: Path | str | None) -> None:
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._torn = False  # the last line has no end
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def emit(self, kind: str, *, at_s: float | None = None, **fields: Any) -> None:
        """Write ``{"kind": kind, "mono_s": time.monotonic(), **fields}``.

        :param at_s: ``time.monotonic`` reading of when it happened; None means now
        :raises ValueError: for a kind that the history does not know
        :raises TypeError: for a field that has no plain form
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of history; known: {', '.join(KINDS)}")
        row = {"kind": kind, "mono_s": time.monotonic() if at_s is None else at_s}
        line = json.dumps({**row, **{name: json_safe(value) for name, value in fields.items()}}) + "\n"
        if self._fd is None:
            return
        with self._lock:
            raw = ("\n" * self._torn + line).encode()
            # a full disk takes a part of it or nothing: a server must not fail for want of a line about itself
            with suppress(OSError):
                self._torn = os.write(self._fd, raw) < len(raw)

    def log(self, level: str, line: str, **fields: Any) -> None:
        """A row of kind ``logs``."""
        self.emit("logs", level=level, line=line, **fields)


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The whole lines from byte ``offset`` on, and where to go on reading; nothing if there is no file yet.

    A line that a full disk cut short is left out.
    """
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for line in whole.splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows, offset + len(whole)
