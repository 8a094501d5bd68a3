"""The jobs of a multirun: a line for each in a file that they share, wherever a launcher lets them run."""

from __future__ import annotations

import csv
import json
import os
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOBS, SUMMARY = "jobs.jsonl", "summary.csv"


@dataclass(frozen=True)
class Job:
    """How one job ended.

    :param number: in the order of the sweep
    :param overrides: all that was given for it
    :param run_dir: None if it never got one
    """

    number: int
    overrides: list[str]
    exit_code: int
    run_dir: str | None


class JobBook:
    """Appended to by each job as it ends; read by whoever started them.

    :param folder: of the multirun, absolute: jobs may run elsewhere; made with the first line
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def below(cls, results_dir: str) -> JobBook:
        """A new one: ``<results_dir>/multirun/<UTC stamp>-<short id>``."""
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        return cls(Path(results_dir).resolve() / "multirun" / stamp)

    def add(self, job: Job) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(job)).encode() + b"\n"
        # one write: lines of jobs that end together stay whole
        fd = os.open(self.folder / JOBS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def jobs(self) -> list[Job]:
        """Those that have ended, in the order of the sweep."""
        path = self.folder / JOBS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return sorted((Job(**json.loads(line)) for line in lines), key=lambda job: job.number)

    def write_summary(self) -> Path:
        """One row per job, arm and metric, of each job's ``summary.json``."""
        path = self.folder / SUMMARY
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["job", "overrides", "run_dir", "arm", "metric", "value"])
            for job, swept in zip(self.jobs(), what_differs(self.jobs()), strict=True):
                table.writerows([job.number, swept, job.run_dir, *row] for row in _metrics(job))
        return path


def what_differs(jobs: Sequence[Job]) -> list[str]:
    """Of each job, what was not given for all of them alike."""
    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    return [" ".join(one for one in job.overrides if one not in common) for job in jobs]


def _metrics(job: Job) -> Iterator[tuple[str, str, object]]:
    path = Path(job.run_dir or "", "summary.json")
    if job.run_dir is None or not path.exists():
        return
    summary = json.loads(path.read_text(encoding="utf-8"))
    yield "", "verdict", summary["verdict"]
    for arm, metrics in summary["arms"].items():
        for metric, value in metrics.items():
            if value is None or isinstance(value, (int, float, str)):
                yield arm, metric, value
