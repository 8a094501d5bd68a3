"""A disk that can be full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@contextmanager
def mounted(folder: Path) -> Iterator[SmallDisk | None]:
    """A small disk at ``folder``; None where nothing may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # somebody may have a file open
