"""What the history of a complete run consists of, so that rows which are lost or changed later are noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmlab.record.load import Run

CHUNK_BYTES = 1 << 20


def take_inventory(folder: Path) -> dict[str, dict[str, Any]]:
    """Kind of history to its number of ``rows`` (finished lines) and the ``sha256`` of its file."""
    return {path.stem: _read(path)[0] for path in sorted(folder.glob("*.jsonl"))}


def check_inventory(run: Run) -> Iterator[tuple[str, bool, str]]:
    """Name of each file of the history, whether it is what was written, and what was expected and found.

    A run that was stored before inventories were taken has none to compare with; of any complete run the last line is
    finished, since only a writer that was killed leaves half of one. Of one that did not complete nothing is said.

    :param run: a raw one
    """
    if run.info.get("status") != "complete":
        return
    found = {path.stem: _read(path) for path in sorted(run.path.glob("history/*.jsonl"))}
    for kind, (_, whole) in found.items():
        if not whole:
            yield f"history/{kind}.jsonl", False, "its last line is torn, in a run that is complete"
    if "history" in run.info:
        yield from _compare(run.info["history"], {kind: entry for kind, (entry, _) in found.items()})


def _compare(written: Any, found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool, str]]:
    if not isinstance(written, Mapping):
        yield "run.json", False, f"history is {written!r}; allowed: kind to rows and sha256"
        return
    for kind in dict.fromkeys([*written, *found]):
        name, expected, here = f"history/{kind}.jsonl", written.get(kind), found.get(kind)
        if expected is None or here is None:
            yield name, False, f"{_words(expected)} written, {_words(here)} found"
        elif expected != here:
            changed = f" with other content ({here['sha256'][:12]})" if _same_count(expected, here) else ""
            yield name, False, f"{_words(expected)} written, {_words(here)} found{changed}"
        else:
            yield name, True, f"{_words(expected)} written and found"


def _same_count(expected: Any, here: Mapping[str, Any]) -> bool:
    return isinstance(expected, Mapping) and expected.get("rows") == here["rows"]


def _words(entry: Any) -> str:
    if entry is None:
        return "no file"
    return f"{entry.get('rows')} rows" if isinstance(entry, Mapping) else repr(entry)


def _read(path: Path) -> tuple[dict[str, Any], bool]:
    """The entry of a file, and whether its last line is finished."""
    rows, digest, last = 0, hashlib.sha256(), b"\n"
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            rows += chunk.count(b"\n")
            digest.update(chunk)
            last = chunk[-1:]
    return {"rows": rows, "sha256": digest.hexdigest()}, last == b"\n"
