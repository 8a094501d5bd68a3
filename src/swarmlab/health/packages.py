"""Are the installed packages the locked ones, and is petals as published?"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from swarmlab.health.finding import Finding, fail, ok

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
REINSTALL = "rm -r .venv && make venv"


def read_pins(*files: Path) -> dict[str, str]:
    """Read the ``name==version`` lines of requirement files.

    :returns: version by normalised name
    :raises OSError: if a file cannot be read
    """
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    found = (re.match(r"([A-Za-z0-9._-]+)==([^\s;#]+)", line) for line in lines)
    return {normalise(match[1]): match[2] for match in found if match}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def judge_versions(pinned: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """Compare installed versions with the lock; a local version such as torch's ``+cpu`` is as good."""
    missing = sorted(pinned.keys() - installed.keys())
    other = sorted(
        f"{name} {installed[name]} (lock: {version})"
        for name, version in pinned.items()
        if name in installed and installed[name].partition("+")[0] != version
    )
    wrong = [f"{name} missing" for name in missing] + other
    if not pinned:
        return fail("packages", "the lock names no package", "git checkout requirements")
    if wrong:
        shown = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        return fail("packages", shown, REINSTALL)
    return ok("packages", f"all {len(pinned)} as locked")


@dataclass(frozen=True)
class FileHash:
    """One installed file.

    :param recorded: the hash that the wheel came with, urlsafe base64 of SHA-256 without padding
    :param actual: the hash of the file now; None if it is gone
    """

    path: str
    recorded: str
    actual: str | None


def judge_unmodified(package: str, files: Iterable[FileHash]) -> Finding:
    """Judge whether a package is as its author published it."""
    files = list(files)
    changed = [file.path for file in files if file.actual != file.recorded]
    if not files:
        return fail(package, "is not installed", REINSTALL)
    if changed:
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        return fail(package, f"changed after it was installed: {shown}", REINSTALL)
    return ok(package, f"unmodified ({len(files)} files have the hashes of the published wheel)")


def measure_installed() -> dict[str, str]:
    """Versions of all installed packages, by normalised name."""
    return {normalise(package.name): package.version for package in metadata.distributions()}


def measure_files(package: str) -> list[FileHash]:
    """Hash the installed files of a package; empty if it is not installed."""
    try:
        files = metadata.distribution(package).files or []
    except metadata.PackageNotFoundError:
        return []
    return [
        FileHash(str(file), file.hash.value, _sha256(Path(str(file.locate()))))
        for file in files
        if file.hash is not None and file.hash.mode == "sha256"
    ]


def check_packages(requirements: Path = REQUIREMENTS) -> list[Finding]:
    """Judge the installed packages by the lock, and petals by its own hashes.

    :param requirements: the folder that holds lock.txt and petals.txt
    """
    try:
        pinned = read_pins(requirements / "lock.txt", requirements / "petals.txt")
    except OSError as error:
        versions = fail("packages", f"no lock: {error}", "run from a checkout of swarmlab")
    else:
        versions = judge_versions(pinned, measure_installed())
    return [versions, judge_unmodified("petals", measure_files("petals"))]


def _sha256(path: Path) -> str | None:
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
