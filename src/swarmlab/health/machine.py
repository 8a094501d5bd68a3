"""Is this machine fit to run a swarm? ``judge_*`` are pure, ``measure_*`` read the machine.

Only the standard library is used, so that the doctor can speak when nothing is installed.
"""

from __future__ import annotations

import resource
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from swarmlab.health.finding import Finding, fail, ok, warn

GIB = 2**30
MIB = 2**20

# A petals server takes 0.5 to 1 GB whatever its model; the default swarm has a handful, and a client.
MEMORY_NEEDED_BYTES, MEMORY_COMFORTABLE_BYTES = 4 * GIB, 8 * GIB
# A run folder takes a few MB; fetching and converting the real model takes about 0.7 GB for a while.
DISK_NEEDED_BYTES, DISK_COMFORTABLE_BYTES = GIB // 2, 2 * GIB
# Servers hand attention caches between processes through shared memory; containers often offer 64 MiB.
SHM_NEEDED_BYTES, SHM_COMFORTABLE_BYTES = 64 * MIB, GIB
# Each p2pd and each of a server's processes holds sockets to all the others.
FILES_NEEDED, FILES_COMFORTABLE = 512, 1024
# Nothing of swarmlab was written earlier, so a clock that shows less is wrong.
EARLIEST_WALL_S = 1_790_000_000.0
CLOCK_WINDOW_S = 0.2


def judge_python(version: tuple[int, int, int]) -> Finding:
    shown = ".".join(map(str, version))
    if version[:2] in ((3, 11), (3, 12)):
        return ok("python", shown)
    return fail("python", shown, "use Python 3.11 or 3.12: make PYTHON=/path/to/python3.11 venv")


def judge_amount(
    name: str, free_bytes: int, needed_bytes: int, comfortable_bytes: int, remedy: str, *, where: str = ""
) -> Finding:
    """Judge an amount of free memory or disk.

    :param where: the file system meant, for the report
    """
    detail = f"{_size(free_bytes)} free" + (f" in {where}" if where else "")
    if free_bytes < needed_bytes:
        return fail(name, f"{detail}, {_size(needed_bytes)} needed", remedy)
    if free_bytes < comfortable_bytes:
        return warn(name, f"{detail}, {_size(comfortable_bytes)} recommended", remedy)
    return ok(name, detail)


def judge_open_files(soft: int, hard: int) -> Finding:
    """Judge the limit on open files, as ``ulimit -n`` shows it; -1 means unlimited."""
    detail = f"limit {_limit(soft)} (hard limit {_limit(hard)})"
    remedy = f"ulimit -n {4 * FILES_COMFORTABLE}"
    if 0 <= soft < FILES_NEEDED:
        return fail("open files", detail, remedy)
    if 0 <= soft < FILES_COMFORTABLE:
        return warn("open files", detail, remedy)
    return ok("open files", detail)


def judge_port(port: int | None, error: str = "") -> Finding:
    """Judge whether a free port of 127.0.0.1 could be bound and reached; ``port`` is None if it could not."""
    if port is None:
        return fail("port", f"127.0.0.1: {error}", "bring the loopback interface up and free some ports")
    return ok("port", f"127.0.0.1:{port} was free and answered")


@dataclass(frozen=True)
class ClockReading:
    """Both clocks over one short window.

    :param monotonic_s: successive readings of the monotonic clock
    :param wall_elapsed_s: what the wall clock advanced in the same window
    :param wall_s: the wall clock at the end, seconds since 1970
    """

    monotonic_s: tuple[float, ...]
    wall_elapsed_s: float
    wall_s: float


def judge_clocks(reading: ClockReading) -> Finding:
    readings = reading.monotonic_s
    steps = [later - earlier for earlier, later in pairwise(readings)]
    if min(steps) < 0 or max(steps) == 0:
        return fail("clock", "the monotonic clock stands still or runs backwards", "run on another machine")
    if reading.wall_s < EARLIEST_WALL_S:
        stamp = time.strftime("%Y-%m-%d", time.gmtime(reading.wall_s))
        return fail("clock", f"the wall clock shows {stamp}", "set the date: records would lapse at once")
    drift_s = reading.wall_elapsed_s - (readings[-1] - readings[0])
    if abs(drift_s) > CLOCK_WINDOW_S / 4:
        return warn("clock", f"the wall clock jumped by {drift_s:+.3f} s", "wait until it has been set")
    return ok("clock", f"monotonic and wall clock agree within {abs(drift_s) * 1000:.1f} ms")


def measure_clocks(window_s: float = CLOCK_WINDOW_S) -> ClockReading:
    wall_start_s, readings = time.time(), [time.monotonic()]
    while readings[-1] - readings[0] < window_s and len(readings) < 1000:
        time.sleep(window_s / 100)
        readings.append(time.monotonic())
    wall_end_s = time.time()
    return ClockReading(tuple(readings), wall_end_s - wall_start_s, wall_end_s)


def measure_memory_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that a run can still take: the machine's, or the container's if that is less."""
    rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available, limit = int(rows["MemAvailable"].split()[0]) * 1024, container_memory(cgroup)
    return available if limit is None else min(available, limit.free_bytes)


@dataclass(frozen=True)
class ContainerMemory:
    """What this container's processes may have together, and what is left of it."""

    limit_bytes: int
    free_bytes: int


def container_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> ContainerMemory | None:
    """None if there is no limit."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):  # no such control group, or "max"
        return None
    return ContainerMemory(limit, max(0, limit - used + _cached_bytes(cgroup)))


def _cached_bytes(cgroup: Path) -> int:
    # files that were read, a checkpoint for one, count as used until somebody needs the memory
    with suppress(OSError, ValueError, KeyError):
        rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return int(rows["inactive_file"])
    return 0


def measure_port() -> tuple[int | None, str]:
    """Bind a free port of 127.0.0.1 and connect to it.

    :returns: the port and an empty error, or None and the error
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return port, ""
    except OSError as error:
        return None, str(error)


def check_machine(results_dir: Path, python: tuple[int, int, int]) -> list[Finding]:
    """Measure and judge everything that needs no child process.

    :param results_dir: where runs would be written; its file system is the one measured
    """
    shm = Path("/dev/shm")
    home = next(folder for folder in (results_dir, *results_dir.resolve().parents) if folder.exists())
    findings = [
        judge_python(python),
        judge_amount(
            "memory",
            measure_memory_bytes(),
            MEMORY_NEEDED_BYTES,
            MEMORY_COMFORTABLE_BYTES,
            "end other programs or start fewer servers",
        ),
        judge_amount(
            "disk",
            shutil.disk_usage(home).free,
            DISK_NEEDED_BYTES,
            DISK_COMFORTABLE_BYTES,
            "free some space or put runs elsewhere with results_dir=DIR",
            where=str(home),
        ),
    ]
    if shm.is_dir():
        free_bytes = shutil.disk_usage(shm).free
        remedy = "enlarge it (docker run --shm-size=2g; mount -o remount,size=2g /dev/shm)"
        findings.append(judge_amount("/dev/shm", free_bytes, SHM_NEEDED_BYTES, SHM_COMFORTABLE_BYTES, remedy))
    else:
        findings.append(fail("/dev/shm", "missing", "mount a tmpfs there: servers share tensors through it"))
    findings.append(judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)))
    findings.append(judge_port(*measure_port()))
    findings.append(judge_clocks(measure_clocks()))
    return findings


def _size(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.0f} MiB"


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)
