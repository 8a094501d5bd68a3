"""Draw figures again from what is stored: ``python -m swarmlab.figures [RUN_DIR | NAME ...]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.errors import BadInput
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import DamagedRun, Run, load_run, write_tables
from swarmlab.record.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from matplotlib.figure import Figure

RESULTS = Path("results")
DOTS_PER_INCH = 150


def draw_run(run_dir: Path | str, folder: Path | None = None) -> list[Path]:
    """Draw the figures of a stored and judged run, as PNG and PDF, and return their paths.

    :param folder: where to; None means the run's own ``figures/``
    :raises BadInput: if the folder holds no run, or one that was not judged or shows nothing
    """
    try:
        run = load_run(run_dir)
        summary = run.summary()
        if not summary or not summary["scenarios"]:
            raise BadInput("run_dir", str(run_dir), "a run that was judged: python -m swarmlab.check RUN_DIR")
        figure = _drawing(run).draw(run, summary)
    except DamagedRun as error:
        raise BadInput("run_dir", str(run_dir), f"an undamaged run; {error}") from error
    target = folder or run.path / "figures"
    target.mkdir(parents=True, exist_ok=True)
    return [_save(figure, target / f"{run.info['exp']}.{kind}") for kind in ("png", "pdf")]


def publish(run_dir: Path | str, results: Path = RESULTS) -> Path:
    """Copy what the figures need of a run to ``<results>/tables/<exp>/``, to be committed, and return that folder.

    :raises BadInput: if the folder holds no run, or one that was not judged
    """
    run = load_run(run_dir)
    summary = run.summary()
    if summary is None:
        raise BadInput("run_dir", str(run_dir), "a run that was judged: python -m swarmlab.check RUN_DIR")
    judging = _drawing(run)
    target = results / "tables" / run.info["exp"]
    write_tables(run, target / "tables", judging.FIGURE_KINDS)
    # The command line and some overrides name folders of the machine; the others say what was asked for.
    write_json(
        target / "run.json",
        {name: _public(name, value) for name, value in run.info.items() if name not in ("argv", "pid")},
    )
    write_json(target / "summary.json", summary)
    return target


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m swarmlab.figures",
        description="Draw figures again. A run folder gets its own; a name means the published results of that "
        "experiment (or, before there are any, its latest run); without arguments, all published results.",
    )
    parser.add_argument("sources", nargs="*", metavar="RUN_DIR|NAME")
    parser.add_argument("--publish", action="store_true", help="first copy the runs to results/tables/")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: results")
    options = parser.parse_args(argv)
    published = options.results / "tables"
    sources = options.sources or sorted(path.parent.name for path in published.glob("*/run.json"))
    if not sources:
        sys.stderr.write(f"nothing is published in {published}; name a run folder\n")
        return 2
    try:
        for source in sources:
            for path in _redraw(source, options.results, first_publish=options.publish):
                sys.stdout.write(f"{path}\n")
    except OSError as error:
        sys.stderr.write(f"figures: cannot write {error.filename}: {error.strerror}\n")
        return 2
    except (BadInput, DamagedRun) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _redraw(source: str, results: Path, *, first_publish: bool) -> list[Path]:
    path = Path(source)
    if not (path / "run.json").is_file() and first_publish:
        path = results / "runs" / source / "latest"
    if first_publish:
        return draw_run(publish(path, results), results / "figures")
    if (path / "run.json").is_file():
        return draw_run(path)
    if (results / "tables" / source / "run.json").is_file():
        return draw_run(results / "tables" / source, results / "figures")
    latest = results / "runs" / source / "latest"
    if (latest / "run.json").is_file():
        return draw_run(latest)
    raise BadInput(
        "figures", source, "a run folder, or an experiment with published results or a complete run"
    )


def _public(name: str, value: Any) -> Any:
    folders = ("results_dir=", "models_dir=", "scenarios_dir=", "model.path=")
    return [one for one in value if not one.startswith(folders)] if name == "overrides" else value


def _drawing(run: Run) -> ModuleType:
    """The judge of the run's experiment, if it draws.

    :raises BadInput: if there is none
    """
    judging = judge_of(run.info["exp"])
    if not hasattr(judging, "draw"):
        raise BadInput("run_dir", run.info["exp"], "a run of an experiment with a figure")
    return judging


def _save(figure: Figure, path: Path) -> Path:
    metadata = {"CreationDate": None} if path.suffix == ".pdf" else {}  # the same run gives the same file
    figure.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight", metadata=metadata)
    return path


if __name__ == "__main__":
    sys.exit(main())
