"""Puts a stored and judged run on one page, figures included."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
import yaml
from rich.text import Text

from swarmlab.analysis.claims_tables import command_of
from swarmlab.analysis.plots.look import world_words
from swarmlab.analysis.timeline import KINDS, Event, timeline
from swarmlab.errors import BadInput
from swarmlab.judges.drawing import figures_of
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import DamagedRun, Run, load_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

SHOWN_EVENTS = 400
FOLDERS = ("history", "tables", "figures", "logs")


@dataclass(frozen=True)
class Column:
    heading: str
    align: str


@dataclass(frozen=True)
class Grid:
    """A table in plain words."""

    title: str
    columns: list[Column]
    rows: list[list[str]]

    @staticmethod
    def begins(row: list[str]) -> bool:
        """Whether a row is the heading of those below it: words in its first cell only."""
        return len(row) > 1 and bool(row[0]) and not any(row[1:])


def write_report(run_dir: Path | str, path: Path | None = None) -> Path:
    """Write the page of a run and return where it is.

    :param path: of the page; None means ``report.html`` in the run's folder
    :raises BadInput: if the folder holds no run, a damaged one, or one that was not judged
    """
    target = path or Path(run_dir) / "report.html"
    try:
        text = render(load_run(run_dir), target.resolve().parent)
        target.write_text(text, encoding="utf-8")
    except DamagedRun as error:
        raise BadInput("run_dir", str(run_dir), f"an undamaged run; {error}") from error
    except OSError as error:
        raise BadInput("report", str(target), f"a file that can be written ({error.strerror})") from error
    return target


def render(run: Run, folder: Path) -> str:
    """The page.

    :param folder: where it will lie; links to the run's files start there
    :raises BadInput: if the run was not judged, or all that was recorded is gone
    :raises DamagedRun: if its history cannot be read
    """
    summary = run.summary()
    if summary is None:
        raise BadInput("run_dir", str(run.path), "a run that was judged: python -m swarmlab.check RUN_DIR")
    if not run.is_raw and not run.kinds:
        raise BadInput("run_dir", str(run.path), "a run with its history/, or with the tables/ made from it")
    judging = judge_of(run.info["exp"])
    events = _events(run)
    figures, no_figure = _figures(run)
    texts = [plain(table) for table in judging.texts(run)] if hasattr(judging, "texts") else []
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("swarmlab.report", ""), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        info={"versions": {}, **run.info}, summary=summary, world=world_words(run.info),
        duration=_duration(run.info), comparison=plain(judging.table(summary)), texts=texts,
        figures=figures, no_figure=no_figure,
        events=events[:SHOWN_EVENTS], n_events=len(events), metrics=_metrics(summary),
        environment=_environment(run.info), command=command_of({"overrides": [], **run.info}),
        config=yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True) if run.config else "",
        files=_files(run.path, folder),
    )  # fmt: skip


def _events(run: Run) -> list[Event]:
    history = {kind: run.history(kind) for kind in KINDS}
    try:
        return timeline(history)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRun(f"a row of {', '.join(KINDS)} is damaged: {error}") from error


def plain(table: Table) -> Grid:
    """A table of the terminal as plain words."""
    columns = [Column(_words(column.header), column.justify or "left") for column in table.columns]
    cells = [[_words(cell) for cell in column.cells] for column in table.columns]
    return Grid(_words(table.title or ""), columns, [list(row) for row in zip(*cells, strict=True)])


def _words(value: Any) -> str:
    return value.plain if isinstance(value, Text) else Text.from_markup(str(value)).plain


def _figures(run: Run) -> tuple[list[dict[str, str]], str]:
    """Each as SVG in base64, and why there is none."""
    try:
        drawn = figures_of(run)
    except BadInput as error:
        return [], str(error)
    shown = []
    for suffix, figure in drawn.items():
        file = io.BytesIO()
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
        shown.append({"name": suffix or run.info["exp"], "data": base64.b64encode(file.getvalue()).decode()})
    return shown, ""


def _metrics(summary: Mapping[str, Any]) -> list[Grid]:
    """Every metric: arms over all scenarios, then each scenario."""
    parts = {"all scenarios": summary.get("arms", {}), **summary.get("scenarios", {})}
    grids = []
    for title, arms in parts.items():
        names = list(dict.fromkeys(name for metrics in arms.values() for name in metrics))
        columns = [Column("metric", "left"), *(Column(arm, "right") for arm in arms)]
        rows = [[name, *(_value(metrics.get(name)) for metrics in arms.values())] for name in names]
        grids.append(Grid(title, columns, rows))
    return grids


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _environment(info: Mapping[str, Any]) -> dict[str, str]:
    host, git, model = info.get("host") or {}, info.get("git") or {}, info.get("model") or {}
    changed = " with changes that were not committed" if git.get("dirty") else ""
    return {
        "host": f"{host.get('cores')} cores, {host.get('cpu')}, {(host.get('memory_bytes') or 0) / 2**30:.0f} GiB",
        "system": f"{host.get('os')}, Python {host.get('python')}",
        "device": str(info.get("device")),
        "commit": f"{git.get('commit') or 'unknown'}{changed}",
        "model": f"{model.get('id')} ({str(model.get('hash'))[:16]})",
        "seed": str(info.get("seed")),
        "began": str(info.get("start_utc")),
        "ended": f"{info.get('end_utc')}{': ' + info['reason'] if info.get('reason') else ''}",
    }


def _duration(info: Mapping[str, Any]) -> str:
    try:
        start, end = (datetime.fromisoformat(info[name]) for name in ("start_utc", "end_utc"))
    except (KeyError, TypeError, ValueError):
        return "no end recorded"
    return f"{(end - start).total_seconds():.0f} s"


def _files(path: Path, folder: Path) -> list[dict[str, str]]:
    kept = [path / "run.json", path / "config.yaml", path / "summary.json"]
    kept += [file for folder in FOLDERS for file in sorted((path / folder).glob("*"))]
    return [
        {"link": quote(os.path.relpath(file, folder)), "size": f"{file.stat().st_size / 1024:.0f} KiB"}
        for file in kept
        if file.is_file()
    ]
