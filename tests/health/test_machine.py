"""Each judgement of the machine can be good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmlab.health import machine
from swarmlab.health.finding import Finding, Status
from swarmlab.health.machine import GIB, ClockReading

NOW_S = machine.EARLIEST_WALL_S + 1e6
STEADY = (0.0, 0.1, 0.2)


def amount(free_bytes: int) -> Finding:
    return machine.judge_amount("memory", free_bytes, 2 * GIB, 4 * GIB, "buy some")


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (machine.judge_python((3, 11, 0)), Status.OK),
        (machine.judge_python((3, 12, 9)), Status.OK),
        (machine.judge_python((3, 10, 14)), Status.FAIL),
        (machine.judge_python((3, 13, 0)), Status.FAIL),
        (amount(4 * GIB), Status.OK),
        (amount(4 * GIB - 1), Status.WARN),
        (amount(2 * GIB), Status.WARN),
        (amount(2 * GIB - 1), Status.FAIL),
        (machine.judge_open_files(1024, 4096), Status.OK),
        (machine.judge_open_files(-1, -1), Status.OK),
        (machine.judge_open_files(1023, 4096), Status.WARN),
        (machine.judge_open_files(256, 4096), Status.FAIL),
        (machine.judge_port(40000), Status.OK),
        (machine.judge_port(None, "Cannot assign requested address"), Status.FAIL),
        (machine.judge_clocks(ClockReading(STEADY, 0.2, NOW_S)), Status.OK),
        (machine.judge_clocks(ClockReading(STEADY, 0.9, NOW_S)), Status.WARN),
        (machine.judge_clocks(ClockReading(STEADY, -3.0, NOW_S)), Status.WARN),
        (machine.judge_clocks(ClockReading((0.0, 0.2, 0.1), 0.1, NOW_S)), Status.FAIL),
        (machine.judge_clocks(ClockReading((5.0, 5.0, 5.0), 0.2, NOW_S)), Status.FAIL),
        (machine.judge_clocks(ClockReading(STEADY, 0.2, 0.0)), Status.FAIL),
    ],
)
def test_judgement(finding: Finding, status: Status):
    assert finding.status is status
    assert bool(finding.remedy) == (status is not Status.OK), "a complaint comes with a remedy"


def test_the_container_limit_counts_if_it_is_lower(tmp_path: Path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    assert machine.measure_memory_bytes(meminfo, tmp_path) == 8000 * 1024

    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert machine.measure_memory_bytes(meminfo, tmp_path) == 8000 * 1024

    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.measure_memory_bytes(meminfo, tmp_path) == 4000
    assert machine.container_memory(tmp_path) == machine.ContainerMemory(5000, 4000)
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 600\n")
    assert machine.measure_memory_bytes(meminfo, tmp_path) == 4600
    (tmp_path / "memory.stat").unlink()

    (tmp_path / "memory.max").write_text("500\n")
    assert machine.measure_memory_bytes(meminfo, tmp_path) == 0


def test_a_results_folder_that_does_not_exist_yet_is_measured_where_it_would_be(tmp_path: Path):
    findings = machine.check_machine(tmp_path / "not" / "yet", (3, 11, 7))

    assert [finding.name for finding in findings] == [
        "python", "memory", "disk", "/dev/shm", "open files", "port", "clock",
    ]  # fmt: skip
    assert next(finding for finding in findings if finding.name == "disk").detail.endswith(str(tmp_path))


def test_a_port_that_cannot_be_bound_is_reported(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError("no loopback")

    monkeypatch.setattr(machine.socket, "create_server", refuse)
    assert machine.measure_port() == (None, "no loopback")
