"""Draw figures again from what is stored: ``python -m swarmlab.figures [RUN_DIR | NAME ...]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.plots.digest import metadata
from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.judges.claims import ROOT, documents, read_claims, results_readme
from swarmlab.judges.drawing import drawing_judge, figures_of, figures_of_published
from swarmlab.record.load import DamagedRun, Run, load_run
from swarmlab.record.published import (
    Published,
    check_repeats,
    read_published,
    write_published,
    write_repeat,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RESULTS = Path("results")
DOTS_PER_INCH = 150


def draw_run(run_dir: Path | str) -> list[Path]:
    """Draw the figures of a stored and judged run, each as PNG and PDF, into its ``figures/``; return their paths.

    :raises BadInput: if the folder holds no run, or one that was not judged or shows nothing
    """
    run = _load(run_dir)
    return _save(figures_of(run), run.path / "figures", run.info["exp"])


def draw_published(one: Published, folder: Path) -> list[Path]:
    """Draw the figures of published runs, under their name; return their paths.

    :raises BadInput: as :func:`draw_run`
    """
    return _save(figures_of_published(one), folder, one.name)


def publish(run_dirs: Sequence[Path | str], results: Path = RESULTS, name: str | None = None) -> Path:
    """Copy what figures and tables need of runs to ``<results>/tables/<name>/``, and return that folder.

    :param run_dirs: the run to show, and repeats of it
    :param name: None means the experiment's
    :raises BadInput: if one is no judged and complete run, is given twice, or they are of different experiments
    """
    first, *others = [_load(path) for path in run_dirs]
    check_repeats(others, first)  # before anything is written
    target = write_published(first, results, drawing_judge(first).FIGURE_KINDS, name)
    for other in others:
        write_repeat(other, target)
    return target


def rebuild(results: Path = RESULTS, names: Sequence[str] | None = None) -> Iterator[Path]:
    """Draw published results again and write ``<results>/README.md``; for the repository's own, its documents, too.

    :param names: of those to draw; None means all
    :raises BadInput, DamagedRun: if something published cannot be used
    """
    for one in read_published(results):
        if names is None or one.name in names:
            yield from draw_published(one, results / "figures")
    claims = read_claims()
    written = {results / "README.md": results_readme(results, claims)}
    if results.resolve() == ROOT / "results":
        written |= documents(claims)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
        yield path


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(
        prog="python -m swarmlab.figures",
        description="Draw figures again. A run folder gets its own; a name means the published results of that "
        "name (or, before there are any, the latest run of the experiment); without arguments, all published "
        "results and their README.",
    )
    parser.add_argument("sources", nargs="*", metavar="RUN_DIR|NAME")
    parser.add_argument(
        "--publish", action="store_true",
        help="first copy the runs, all of one experiment, to results/tables/: the one to show, then its repeats",
    )  # fmt: skip
    parser.add_argument("--as", dest="name", help="publish under this name (default: the experiment's)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: results")
    options = parser.parse_args(argv)
    if not options.sources and not any(options.results.glob("tables/*/run.json")):
        return refuse(f"nothing is published in {options.results / 'tables'}; name a run folder")
    if options.publish and not options.sources:
        return refuse("--publish: nothing to publish; name the folders of runs, the one to show first")
    if options.name is not None and not options.publish:
        return refuse("--as: a name to publish under; it goes with --publish")
    try:
        for path in _wanted(options):
            sys.stdout.write(f"{path}\n")
    except OSError as error:
        return refuse(f"{error.filename} cannot be written: {error.strerror}")
    except (BadInput, DamagedRun) as error:
        return refuse(error)
    return 0


def _wanted(options: argparse.Namespace) -> Iterator[Path]:
    results = options.results
    if not options.sources:
        yield from rebuild(results)
    elif options.publish:
        folder = publish([_run_folder(source, results) for source in options.sources], results, options.name)
        for one in read_published(results):
            for remark in one.remarks if one.name == folder.name else ():
                sys.stderr.write(f"swarmlab: {remark}\n")
        yield from rebuild(results, [folder.name])
    else:
        published = {one.name: one for one in read_published(results)}
        for source in options.sources:
            if not (Path(source) / "run.json").is_file() and source in published:
                yield from draw_published(published[source], results / "figures")
            else:
                yield from draw_run(_run_folder(source, results))


def _run_folder(source: str, results: Path) -> Path:
    """
    :raises BadInput: if it is neither a run folder nor an experiment with a complete run
    """
    latest = results / "runs" / source / "latest"
    for path in (Path(source), latest):
        if (path / "run.json").is_file():
            return path
    raise BadInput(
        "figures", source, "a run folder, or an experiment with published results or a complete run"
    )


def _save(figures: Mapping[str, Any], folder: Path, stem: str) -> list[Path]:
    """
    :param figures: suffix of the name to figure
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, figure in figures.items():
        for kind in (".png", ".pdf"):
            path = folder / f"{'_'.join(filter(None, (stem, suffix)))}{kind}"
            # the same run gives the same file
            figure.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight", metadata=metadata(figure, kind))
            paths.append(path)
    return paths


def _load(path: Path | str) -> Run:
    try:
        return load_run(path)
    except DamagedRun as error:
        raise BadInput("run_dir", str(path), f"an undamaged run; {error}") from error


if __name__ == "__main__":
    sys.exit(main())
