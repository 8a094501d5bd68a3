from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from swarmlab.record.jobs import Job
from swarmlab.scenarios.multirun import show_jobs


def test_lists_among_the_settings_are_shown_as_they_were_given():
    jobs = [
        Job(number, ["+exp=churn", f"arms=[{arm}]"], 0, None)
        for number, arm in enumerate(("petals", "swarmlab"))
    ]
    console = Console(file=io.StringIO(), width=80)
    show_jobs(jobs, Path("summary.csv"), console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "arms=[petals]" in shown
    assert "arms=[swarmlab]" in shown
