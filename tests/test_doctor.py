"""The doctor's report and exit code, and one examination of this very machine."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import psutil
import pytest

from swarmlab import doctor
from swarmlab.health.finding import Finding, fail, ok, warn


@pytest.mark.parametrize(
    ("findings", "code", "last"),
    [
        ([ok("a", "fine"), warn("b", "tight", "tidy up")], 0, "1 ok, 1 warnings, 0 failed"),
        ([ok("a", "fine"), fail("b", "broken", "mend it")], 1, "1 ok, 0 warnings, 1 failed"),
    ],
)
def test_only_a_failure_makes_the_exit_code_non_zero(
    findings: list[Finding], code: int, last: str, capsys: pytest.CaptureFixture[str]
):
    assert doctor.report(iter(findings)) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    assert len(lines) == len(findings) + 1, "one line per check"


def test_a_failure_is_shown_with_its_remedy():
    assert fail("disk", "1 MiB free", "free some").line() == "FAIL  disk          1 MiB free -> free some"


@pytest.mark.swarm
def test_this_machine_passes_and_no_process_is_left():
    mark = uuid.uuid4().hex
    result = subprocess.run(
        [sys.executable, "-m", "swarmlab.doctor"],
        env={**os.environ, "SWARMLAB_TEST_MARK": mark},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    names = [line[6:18].strip() for line in result.stdout.splitlines()[:-1]]
    assert names == [
        "python", "memory", "disk", "/dev/shm", "open files", "port", "clock",
        "packages", "petals", "imports", "p2pd", "gpu",
    ]  # fmt: skip
    assert marked_processes(mark) == []


def marked_processes(mark: str) -> list[str]:
    """Every process that inherited the mark, however it was re-parented."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SWARMLAB_TEST_MARK") == mark:
                found.append(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found
