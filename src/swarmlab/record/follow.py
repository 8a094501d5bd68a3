"""Reads the history of a run that may still be going on: what is new since the last look."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class Follower:
    """Remembers how far each file was read; a line that is not finished yet waits for the next look.

    :param run_dir: the folder of a run
    :param kinds: of history to follow
    """

    def __init__(self, run_dir: Path, kinds: Sequence[str]) -> None:
        self._paths = {kind: run_dir / "history" / f"{kind}.jsonl" for kind in kinds}
        self._read = dict.fromkeys(kinds, 0)

    def news(self) -> list[tuple[str, dict[str, Any]]]:
        """Kind and row of every line that was added, in the order of time; a damaged one is left out, and a judge's
        business."""
        found = [
            (kind, row)
            for kind, path in self._paths.items()
            if path.exists()
            for row in self._rows(kind, path)
        ]
        return sorted(found, key=lambda one: _time(one[1]))

    def _rows(self, kind: str, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._read[kind])
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._read[kind] += end
        for line in data[:end].splitlines():
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError):
                continue
            if isinstance(row, dict):
                yield row


def _time(row: dict[str, Any]) -> float:
    t = row.get("t")
    return float(t) if isinstance(t, (int, float)) else 0.0
