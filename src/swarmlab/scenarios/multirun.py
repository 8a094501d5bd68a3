"""What a multirun shows at its end: one line per job."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swarmlab.record.jobs import Job, what_differs

OUTCOMES = {0: "holds", 1: "fails", 2: "bad input", 3: "unknown"}


def show_jobs(jobs: list[Job], summary: Path, console: Console | None = None) -> None:
    """
    :param jobs: in the order of the sweep
    :param summary: the file with the numbers of all of them
    """
    table = Table(box=None)
    for heading in ("job", "settings", "outcome", "run folder"):
        table.add_column(heading, overflow="fold")  # on a narrow terminal nothing is cut off
    for job, swept in zip(jobs, what_differs(jobs), strict=True):
        outcome = OUTCOMES.get(job.exit_code, f"ended with {job.exit_code}")
        table.add_row(str(job.number), escape(swept), outcome, Path(job.run_dir).name if job.run_dir else "-")
    console = console or Console()
    console.print(table)
    console.print(f"all numbers: {summary}", markup=False, highlight=False, soft_wrap=True)
