"""Sole reader of a run's raw files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from swarmlab.errors import BadInput
from swarmlab.record.writer import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence


CONFIG = "allowed: the settings of the run, a mapping in YAML"


class DamagedRun(ValueError):
    """A stored file is not what was written; nothing should be concluded from the run."""


@dataclass(frozen=True)
class Run:
    """A stored run, or the published part of one (``run.json`` and ``tables/`` only).

    :param path: its folder
    :param info: ``run.json``
    :param config: ``config.yaml``; empty if it is not there
    """

    path: Path
    info: dict[str, Any]
    config: dict[str, Any]

    @property
    def is_raw(self) -> bool:
        """Whether this is the run's own folder, with all that was recorded; what is published has only tables."""
        return (self.path / "history").is_dir()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of history that were recorded."""
        return tuple(kind for kind in KINDS if self._jsonl(kind).exists() or self._parquet(kind).exists())

    def history(self, kind: str) -> list[dict[str, Any]]:
        """The rows of one kind, from the raw history or, where that is not kept, from the table.

        Every row has at least the columns of its kind, None where nothing was written. A last line that was cut
        off by a crash is left out; a kind that was never written has no rows.

        :raises DamagedRun: if any other line cannot be read, or a raw run lost the file that its table was made from
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of history; known: {', '.join(KINDS)}")
        rows: list[dict[str, Any]] = []
        if self._jsonl(kind).exists():
            rows = read_jsonl(self._jsonl(kind))
        elif self._parquet(kind).exists():
            if self.is_raw:
                raise DamagedRun(f"history/{kind}.jsonl was removed (its table is there)")
            rows = _read_parquet(self._parquet(kind))
        blank = dict.fromkeys(("t", "arm", *KINDS[kind]))
        return [{**blank, **row} for row in rows]

    def frame(self, kind: str) -> pd.DataFrame:
        """The same as a table that has at least the columns of the kind."""
        rows = self.history(kind)
        return pd.DataFrame(rows, columns=_columns(kind, rows))

    def states(self, scenario: str, arm: str) -> dict[str, np.ndarray] | None:
        """Arrays a client saved (``hidden``, ``token_ids``); None if it saved none.

        :raises DamagedRun: if the file is cut off or is not an archive of arrays
        """
        path = self.path / "states" / f"{scenario}.{arm}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise DamagedRun(f"states/{path.name} cannot be read: {error}") from error

    def summary(self) -> dict[str, Any] | None:
        """The stored summary; None before the run was judged."""
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None

    def source(self, kind: str) -> str:
        """The file that rows of a kind come from, as a reader knows it."""
        return f"history/{kind}.jsonl" if self.is_raw else f"tables/{kind}.parquet"

    def _jsonl(self, kind: str) -> Path:
        return self.path / "history" / f"{kind}.jsonl"

    def _parquet(self, kind: str) -> Path:
        return self.path / "tables" / f"{kind}.parquet"


def load_run(path: Path | str, *, field: str = "run_dir") -> Run:
    """Open a stored run.

    :param field: what the user calls the folder
    :raises BadInput: if the folder holds no run
    :raises DamagedRun: if ``run.json`` or ``config.yaml`` cannot be read
    """
    folder = Path(path)
    if not (folder / "run.json").is_file():
        raise BadInput(field, str(path), "the folder of a run, with its run.json")
    info = read_json(folder / "run.json")
    if not isinstance(info, dict):
        raise DamagedRun(f"{shown(folder / 'run.json')} is {info!r}; allowed: what a run writes, a mapping")
    if not isinstance(info.get("exp"), str):
        raise DamagedRun(
            f"{shown(folder / 'run.json')}: exp is {info.get('exp')!r}; allowed: the name of an experiment"
        )
    config_path = folder / "config.yaml"
    try:
        config = yaml.safe_load(config_path.read_text(encoding="utf-8")) if config_path.exists() else {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DamagedRun(f"{shown(config_path)} is no readable YAML{_where(error)}; {CONFIG}") from error
    if not isinstance(config, dict):
        raise DamagedRun(f"{shown(config_path)} is {type(config).__name__}; {CONFIG}")
    return Run(folder.resolve(), info, config)


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1}: {getattr(error, 'problem', None)})" if mark else ""


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of one file of the history.

    Only a writer that was killed leaves a last line without a newline: such a line counts if it is whole.

    :raises DamagedRun: naming file and line, if a finished line is not a JSON object
    """
    *lines, tail = path.read_bytes().split(b"\n")
    rows = [_parse(line) for line in lines]
    for number, row in enumerate(rows, start=1):
        if row is None:
            raise DamagedRun(f"{path.parent.name}/{path.name} line {number} is damaged")
    torn = _parse(tail)
    return [row for row in [*rows, torn] if row is not None]


def write_tables(run: Run, folder: Path | None = None, kinds: Sequence[str] | None = None) -> list[Path]:
    """Write the history as one parquet table per kind and return their paths.

    Lists stay lists; a column that mixes types is written as JSON text.

    :param folder: where to; None means the run's own ``tables/``
    :param kinds: which of those that were recorded; None means all
    :raises DamagedRun: if the history cannot be read
    """
    target = run.path / "tables" if folder is None else folder
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in run.kinds:
        if kinds is not None and kind not in kinds:
            continue
        rows = run.history(kind)
        table = pa.table({name: _arrow([row.get(name) for row in rows]) for name in _columns(kind, rows)})
        written.append(target / f"{kind}.parquet")
        pq.write_table(table, written[-1])
    return written


def _arrow(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json.dumps(value) for value in values])


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        return pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedRun(f"tables/{path.name} cannot be read: {error}") from error


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return row if isinstance(row, dict) else None


def _columns(kind: str, rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(["t", "arm", *KINDS[kind], *(name for row in rows for name in row)]))


def read_json(path: Path) -> Any:
    """
    :raises DamagedRun: if it is no JSON
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DamagedRun(f"{shown(path)} cannot be read: {error}; allowed: a JSON file") from error


def shown(path: Path) -> Path:
    """As a user of this folder would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
