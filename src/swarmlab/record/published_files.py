"""Reads the files of one published folder; what is wrong with one is said in a line: file, field, value, allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from swarmlab.errors import BadInput
from swarmlab.record.load import DamagedRun, load_run, read_json

if TYPE_CHECKING:
    from swarmlab.record.load import Run


@dataclass(frozen=True)
class _Kind:
    fits: Callable[[Any], bool]
    words: str


def _of(kind: type, words: str) -> _Kind:
    return _Kind(lambda value: isinstance(value, kind), words)


_TEXT = _of(str, "a text")
_TEXTS = _Kind(
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of texts"
)
_MAPPING = _of(Mapping, "a mapping")
_OPTIONAL = _Kind(lambda value: value is None or _TEXTS.fits(value), "a list of texts, or nothing")
INFO = {
    "id": _TEXT, "exp": _TEXT, "status": _TEXT, "world": _TEXT, "overrides": _TEXTS, "arms": _TEXTS,
    "scenarios": _OPTIONAL,
}  # fmt: skip
SUMMARY = {"arms": _MAPPING, "scenarios": _MAPPING, "verdict": _TEXT, "reasons": _TEXTS}
REPEAT = {"info": _MAPPING, "summary": _MAPPING}


def read_shown(folder: Path) -> Run:
    """The run whose tables are kept.

    :raises BadInput, DamagedRun: if one of its files lacks something or cannot be read
    """
    run = load_run(folder)
    _check(folder / "run.json", run.info, INFO)
    if not (folder / "summary.json").is_file():
        raise BadInput(
            str(folder / "summary.json"), "no file", "the summary.json of the run that is published"
        )
    _check_summary(folder / "summary.json", read_json(folder / "summary.json"))
    return run


def read_repeats(folder: Path, exp: str) -> tuple[tuple[dict[str, Any], dict[str, Any]], ...]:
    """``run.json`` and ``summary.json`` of the others.

    :param exp: the experiment of the run that is shown
    :raises BadInput, DamagedRun: if a file lacks something or cannot be read
    """
    kept = []
    for path in sorted(folder.glob("repeats/*.json")):
        repeat = read_json(path)
        _check(path, repeat, REPEAT)
        _check(path, repeat["info"], INFO, "info.")
        _check_summary(path, repeat["summary"], "summary.")
        if repeat["info"]["exp"] != exp:
            raise BadInput(f"{path}: info.exp", repeat["info"]["exp"], f"{exp}, as the run that it repeats")
        kept.append((repeat["info"], repeat["summary"]))
    return tuple(kept)


def _check_summary(path: Path, summary: Any, below: str = "") -> None:
    _check(path, summary, SUMMARY, below)
    _check(path, summary["arms"], dict.fromkeys(summary["arms"], _MAPPING), f"{below}arms.")
    _check(path, summary["scenarios"], dict.fromkeys(summary["scenarios"], _MAPPING), f"{below}scenarios.")
    for name, arms in summary["scenarios"].items():
        _check(path, arms, dict.fromkeys(arms, _MAPPING), f"{below}scenarios.{name}.")


def _check(path: Path, content: Any, wanted: Mapping[str, _Kind], below: str = "") -> None:
    if not isinstance(content, Mapping):
        raise BadInput(str(path), content, f"a mapping with {', '.join(wanted)}")
    for name, kind in wanted.items():
        if not kind.fits(content.get(name)):
            raise BadInput(f"{path}: {below}{name}", content.get(name), kind.words)


def check_tables(run: Run, needed: tuple[str, ...]) -> Iterator[tuple[str, bool, str]]:
    """Name of each table of a published run, whether it is as it was written, and what was expected and found.

    :param needed: kinds that every run of the experiment has
    """
    written = run.info.get("history")
    rows = (
        {kind: entry.get("rows") for kind, entry in written.items()} if isinstance(written, Mapping) else {}
    )
    for kind in needed:
        path = run.path / "tables" / f"{kind}.parquet"
        if not path.is_file():
            yield f"tables/{path.name}", False, "not there"
    for path in sorted(run.path.glob("tables/*.parquet")):
        try:
            found = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowInvalid) as error:
            raise DamagedRun(f"tables/{path.name} cannot be read: {error}") from error
        expected = rows.get(path.stem, found)
        yield f"tables/{path.name}", expected == found, f"{expected} rows written, {found} found"
