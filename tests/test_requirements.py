"""The requirement files, the lock, pyproject.toml and the pins of petals agree, or say where they do not."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from swarmlab.health.packages import normalise, read_pins

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
LOCK = read_pins(REQUIREMENTS / "lock.txt")


def read_requirements(name: str) -> list[Requirement]:
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("name", ["base.in", "dev.in"])
def test_the_lock_satisfies_every_direct_requirement(name: str):
    for requirement in read_requirements(name):
        version = LOCK.get(normalise(requirement.name))
        assert version, f"{requirement.name} is not in lock.txt: run `make lock`"
        assert requirement.specifier.contains(version), (
            f"{requirement} but the lock has {version}: run `make lock`"
        )


def test_the_installed_metadata_names_the_direct_requirements():
    """pyproject.toml takes its dependencies from base.in and dev.in and adds none of its own."""
    installed = [Requirement(text) for text in metadata.requires("swarmlab") or []]

    assert {r.name for r in installed if r.marker is None} == {r.name for r in read_requirements("base.in")}
    assert {r.name for r in installed if r.marker is not None} == {
        r.name for r in read_requirements("dev.in")
    }


def test_the_lock_fits_cpu_and_cuda_machines():
    text = (REQUIREMENTS / "lock.txt").read_text()

    assert re.search(r"^torch==[0-9.]+$", text, re.MULTILINE), (
        "a local version (+cpu) would exclude the other build"
    )
    assert not re.search(r"^(nvidia|cuda|triton)", text, re.MULTILINE)


def documented_conflicts() -> set[str]:
    return set(re.findall(r"^\| `(\S+)` \| `[<=>]", (REQUIREMENTS / "README.md").read_text(), re.MULTILINE))


def test_all_that_petals_needs_is_locked_and_each_conflict_is_explained():
    needed = [Requirement(text) for text in metadata.requires("petals") or []]
    needed = [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]

    assert not {normalise(r.name) for r in needed} - LOCK.keys()
    conflicts = {r.name for r in needed if not r.specifier.contains(Version(LOCK[normalise(r.name)]))}
    assert conflicts == documented_conflicts()


def test_pip_complains_of_nothing_that_is_not_explained():
    result = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = re.findall(r"^petals \S+ has requirement ([A-Za-z0-9_-]+)", result.stdout, re.MULTILINE)

    assert set(complaints) == documented_conflicts()
    assert len(complaints) == len(result.stdout.splitlines()), result.stdout


def test_every_imported_package_is_a_direct_requirement():
    declared = {normalise(r.name) for r in read_requirements("base.in")} | {"petals", "swarmlab"}
    providers = metadata.packages_distributions()
    undeclared = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in (ROOT / "src").rglob("*.py")
        for name in imported_names(file)
        if name not in sys.stdlib_module_names
        and not declared & {normalise(provider) for provider in providers.get(name, [])}
    }
    assert not undeclared


def imported_names(file: Path) -> set[str]:
    """Top-level names of the absolute imports of a source file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
