"""Probes that crash, hang or leave processes behind are reported, and nothing of them stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from swarmlab.health.finding import Status
from swarmlab.health.probe import Report, judge_gpu, judge_imports, judge_p2pd, run_probe

Write = Callable[[str], int]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the source of a module `sample_probe` that a child process can import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (tmp_path / "sample_probe.py").write_text


def test_the_last_line_is_the_report(write: Write):
    write("print('noise'); print('{\"seconds\": 1}')")

    assert run_probe("sample_probe") == Report({"seconds": 1})


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("raise OSError('no such luck')", "exit code 1: OSError: no such luck"),
        ("import os; os.kill(os.getpid(), 11)", "exit code -11: it said nothing"),
        ("print('{\"seconds\": 1}'); raise SystemExit(3)", 'exit code 3: {"seconds": 1}'),
        ("print('not json')", "exit code 0: not json"),
    ],
)
def test_a_probe_that_fails_says_why(write: Write, source: str, error: str):
    write(source)

    assert run_probe("sample_probe").error == error


def test_a_probe_that_hangs_is_ended(write: Write, tmp_path: Path):
    write(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    report = run_probe("sample_probe", timeout_s=3)

    assert report.error == "no answer within 3 s"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_what_outlives_a_probe_is_reported_and_ended(write: Write):
    write(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print('{\"pid\": %d}' % child.pid)"
    )  # fmt: skip
    report = run_probe("sample_probe")

    assert report.left_behind
    deadline_s = time.monotonic() + 10
    while running(report.values["pid"]):
        assert time.monotonic() < deadline_s, "the child is still running"
        os.sched_yield()


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


BROKEN = Report(error="exit code 1: boom")


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (judge_imports(Report({"imported": ["petals"], "failed": {}, "seconds": 4.0})), Status.OK),
        (
            judge_imports(Report({"imported": [], "failed": {"petals": "ImportError: x"}, "seconds": 1})),
            Status.FAIL,
        ),
        (judge_imports(BROKEN), Status.FAIL),
        (judge_p2pd(Report({"seconds": 0.7})), Status.OK),
        (judge_p2pd(Report({"seconds": 0.7}, left_behind=True)), Status.FAIL),
        (judge_p2pd(BROKEN), Status.FAIL),
        (judge_gpu(Report({"devices": [], "torch": "2+cpu"}), driver=False), Status.OK),
        (judge_gpu(Report({"devices": ["H200 139 GiB"], "torch": "2"}), driver=True), Status.OK),
        (judge_gpu(Report({"devices": [], "torch": "2+cpu"}), driver=True), Status.WARN),
        (judge_gpu(BROKEN, driver=True), Status.FAIL),
    ],
)
def test_judgement(finding, status: Status):
    assert finding.status is status
    assert bool(finding.remedy) == (status is not Status.OK), "a complaint comes with a remedy"
