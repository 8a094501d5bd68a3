"""What is committed of runs: ``results/tables/<name>/``, one run with its tables and what repeats of it measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from swarmlab.errors import BadInput
from swarmlab.record.load import Run, load_run, write_tables
from swarmlab.record.published_files import read_repeats, read_shown
from swarmlab.record.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PRIVATE = ("argv", "pid")
# settings that name a folder or a machine, beside all that end in _dir
PLACES = ("path", "address", "address_file", "from_record", "public_ip")
NOT_ASKED = ("cluster.bind", "hydra.")  # overrides that do not say what was asked for either


@dataclass(frozen=True)
class Published:
    """Runs of one experiment that were asked for alike, up to the seed.

    :param name: of the folder; of the experiment unless several kinds of its runs are published
    :param run: the one whose tables are kept and that the figures show
    :param repeats: ``run.json`` and ``summary.json`` of the others
    """

    name: str
    run: Run
    repeats: tuple[tuple[dict[str, Any], dict[str, Any]], ...]

    @property
    def runs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """``run.json`` and ``summary.json`` of all, the shown one first."""
        return [(self.run.info, self.run.summary() or {}), *self.repeats]

    @property
    def remarks(self) -> Iterator[str]:
        """What whoever publishes should know of runs that are marked in the table of runs, one line each."""
        for info, summary in self.runs:
            git = info.get("git") or {}
            if summary.get("verdict") != "holds":
                yield f"{info['id']} does not hold: it is published with its verdict, {summary.get('verdict')}"
            if git.get("commit") is None:
                yield f"{info['id']} was made outside git: it is published without its commit"
            elif git.get("dirty"):
                yield f"{info['id']} was made with uncommitted changes: its commit is published with a + behind it"


def write_published(run: Run, results: Path, kinds: Sequence[str], name: str | None = None) -> Path:
    """Keep a judged run as the one to show, in ``<results>/tables/<name>/``; repeats of another run are dropped.

    :param kinds: of history, those that the figures need
    :param name: None means the experiment's
    :raises BadInput: if the run is not complete or was not judged
    """
    summary, target = _judged(run), results / "tables" / (name or run.info["exp"])
    # what an earlier run left would pass for a part of this one
    for old in (*target.glob("tables/*.parquet"), *target.glob("repeats/*.json")):
        old.unlink()
    write_tables(run, target / "tables", kinds)
    write_json(target / "run.json", public_info(run.info))
    write_json(target / "summary.json", summary)
    write_config(run, target)
    return target


def check_repeat(run: Run, of: Run) -> None:
    """
    :raises BadInput: if it is no repeat of the other run, not complete or was not judged
    """
    _judged(run)
    if of.info["exp"] != run.info["exp"]:
        allowed = f"another run of {of.info['exp']}, as the first one is; this one is of {run.info['exp']}"
        raise BadInput("run_dir", str(run.path), allowed)
    if of.info["id"] == run.info["id"]:
        raise _given_twice(run)
    swarm = (of.info.get("compared_with") or {}).get("id")
    if swarm is not None and (run.info.get("compared_with") or {}).get("id") == swarm:
        raise BadInput("run_dir", str(run.path), f"a comparison with another real run than {swarm}")


def check_repeats(runs: Sequence[Run], of: Run) -> None:
    """
    :raises BadInput: if one is no repeat of the other run, as :func:`check_repeat`, or they are not all different
    """
    seen: set[str] = set()
    for run in runs:
        check_repeat(run, of)
        if run.info["id"] in seen:
            raise _given_twice(run)
        seen.add(run.info["id"])


def _given_twice(run: Run) -> BadInput:
    return BadInput("run_dir", str(run.path), f"each run once; {run.info['id']} is given twice")


def write_repeat(run: Run, target: Path) -> Path:
    """Keep what a further run measured beside the one that is shown.

    :raises BadInput: if it is no repeat of it, not complete or was not judged
    """
    check_repeat(run, load_run(target))
    path = target / "repeats" / f"{run.info['id']}.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"info": public_info(run.info), "summary": _judged(run)})
    return path


def read_published(results: Path) -> Iterator[Published]:
    """Everything that is published, by name.

    :raises BadInput, DamagedRun: naming the file, if one lacks something or cannot be read
    """
    for path in sorted(results.glob("tables/*/run.json")):
        yield read_one(path.parent)


def read_one(folder: Path) -> Published:
    """What is published in ``<results>/tables/<name>``.

    :raises BadInput, DamagedRun: as :func:`read_published`
    """
    run = read_shown(folder)
    return Published(folder.name, run, read_repeats(folder, run.info["exp"]))


def most_alike(run: Run, published: Iterable[Published]) -> Published | None:
    """What is published of the run's experiment, and was asked for most like it, up to folders and the seed: an
    experiment can be published several times, with other settings. None if it is not published."""

    def asked_for(info: dict[str, Any]) -> set[str]:
        return {one for one in public_info(info)["overrides"] if not one.startswith("seed=")}

    def farness(other: Published) -> tuple[int, int]:
        mine, theirs = asked_for(run.info), asked_for(other.run.info)
        return len(mine ^ theirs), -len(mine & theirs)

    kinds = [one for one in published if one.run.info["exp"] == run.info["exp"]]
    return min(kinds, key=farness, default=None)


def newest_run(results: Path) -> Path | None:
    """The newest complete run in ``<results>/runs``, of any experiment; None if there is none."""
    latest = [path.resolve() for path in results.glob("runs/*/latest") if (path / "summary.json").is_file()]
    return max(latest, key=lambda path: path.name, default=None)


def write_config(run: Run, target: Path) -> Path:
    """Keep the resolved config of a run beside what is published of it."""
    path = target / "config.yaml"
    path.write_text(
        yaml.safe_dump(public_config(run.config), sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    return path


def public_config(config: dict[str, Any]) -> dict[str, Any]:
    """The resolved config without what names folders and machines."""
    kept: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            kept[name] = public_config(value)
        elif not (isinstance(value, str) and _names_a_place(name)):
            kept[name] = value
    return kept


def public_info(info: dict[str, Any]) -> dict[str, Any]:
    """``run.json`` without what names the machine's folders."""
    kept = {name: value for name, value in info.items() if name not in PRIVATE}
    return {**kept, "overrides": [one for one in info["overrides"] if _says_what_was_asked(one)]}


def _says_what_was_asked(override: str) -> bool:
    name = override.partition("=")[0]
    return not (name.startswith(NOT_ASKED) or _names_a_place(name.rpartition(".")[2]))


def _names_a_place(setting: str) -> bool:
    return setting in PLACES or setting.endswith("_dir")


def _judged(run: Run) -> dict[str, Any]:
    if not run.is_raw:  # publishing it again could overwrite it with less
        raise BadInput("run_dir", str(run.path), "a run's own folder, with all that was recorded")
    if (status := run.info.get("status")) != "complete":
        raise BadInput("run_dir", str(run.path), f"a complete run; this one is {status}")
    if (summary := run.summary()) is None:
        raise BadInput(
            "run_dir", str(run.path), f"a run that was judged: python -m swarmlab.check {run.path}"
        )
    return summary
