from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from swarmlab.bridge.serving.heap import trim

MIB = 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def freed_and_trimmed() -> tuple[int, int]:
    """Resident bytes after 80 MiB in small pieces were freed, and after trimming."""
    bytearray(30 * MIB)  # from now on the C library does not hand back at once what is smaller than this
    pieces = [bytearray(b"x" * 4 * MIB) for _ in range(20)]
    keep = bytearray(b"x" * 4 * MIB)  # what lies behind the pieces keeps them in the heap
    del pieces
    before = resident_bytes()
    trim()
    del keep
    return before, resident_bytes()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps other habits")
def test_what_was_freed_goes_back_to_the_system():
    code = "from tests.bridge.serving import test_heap; print(*test_heap.freed_and_trimmed())"
    root = Path(__file__).parents[3]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    before, after = map(int, told.stdout.split())
    assert before - after > 60 * MIB
