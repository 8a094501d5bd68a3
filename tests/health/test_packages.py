"""Wrong versions and touched files are found."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from swarmlab.health import packages
from swarmlab.health.finding import Status


def test_pins_are_read_from_requirement_files(tmp_path: Path):
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "# a comment\nHydra_Core==1.3.8\npetals==2.2.0.post1 --hash=sha256:ab\n    # via x\nloose>=1\n"
    )

    assert packages.read_pins(lock) == {"hydra-core": "1.3.8", "petals": "2.2.0.post1"}


@pytest.mark.parametrize(
    ("installed", "status", "said"),
    [
        ({"torch": "2.13.0+cpu", "numpy": "2.4.6", "more": "1"}, Status.OK, "all 2"),
        ({"torch": "2.13.1", "numpy": "2.4.6"}, Status.FAIL, "torch 2.13.1 (lock: 2.13.0)"),
        ({"torch": "2.13.0"}, Status.FAIL, "numpy missing"),
    ],
)
def test_installed_versions_are_compared_with_the_lock(installed: dict[str, str], status: Status, said: str):
    finding = packages.judge_versions({"torch": "2.13.0", "numpy": "2.4.6"}, installed)

    assert finding.status is status
    assert said in finding.detail


def test_an_empty_lock_is_no_proof():
    assert packages.judge_versions({}, {"torch": "1"}).status is Status.FAIL


def test_a_missing_lock_is_reported(tmp_path: Path):
    assert packages.check_packages(tmp_path)[0].status is Status.FAIL


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package `sample` of two files."""
    folder, info = tmp_path / "sample", tmp_path / "sample-1.dist-info"
    folder.mkdir()
    info.mkdir()
    rows = ["sample-1.dist-info/RECORD,,"]
    for name, text in (("__init__.py", ""), ("core.py", "x = 1\n")):
        (folder / name).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"sample/{name},sha256={digest},{len(text)}")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1\n")
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.usefixtures("published")
def test_a_package_as_published_passes():
    finding = packages.judge_unmodified("sample", packages.measure_files("sample"))

    assert finding.status is Status.OK
    assert "2 files" in finding.detail


def test_a_changed_file_is_named(published: Path):
    (published / "core.py").write_text("x = 2\n")
    finding = packages.judge_unmodified("sample", packages.measure_files("sample"))

    assert finding.status is Status.FAIL
    assert "sample/core.py" in finding.detail


def test_a_removed_file_is_named(published: Path):
    (published / "core.py").unlink()

    assert "sample/core.py" in packages.judge_unmodified("sample", packages.measure_files("sample")).detail


def test_a_package_that_is_not_installed_fails():
    assert (
        packages.judge_unmodified("absent", packages.measure_files("no-such-package")).status is Status.FAIL
    )
