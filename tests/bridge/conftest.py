from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

DISK_BYTES = 2 * 2**20


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, of 2 MiB."""

    folder: Path

    def fill(self, leave_bytes: int) -> Path:
        """A file that takes the rest."""
        ballast = self.folder / "ballast"
        ballast.write_bytes(b"x" * (DISK_BYTES - leave_bytes))
        return ballast


@pytest.fixture
def small_disk(tmp_path):
    """A disk that can be full; skipped where nothing may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is not permitted here")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a test may have a file open
