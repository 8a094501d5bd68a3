"""Gathers the locked packages for a machine without a network: ``make wheels PYTHON=3.12 PLATFORM=...``.

Only what the lock names is downloaded, without asking for dependencies: the lock has them all. What is published as
source only is built here, where it is plain Python; the rest is brought as source, and said so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from swarmlab.health.packages import normalise, read_pins

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements"
# Not needed where servers and experiments run: notebooks, Ray, and what converts the small real model.
NOT_FOR_RUNS = {"jupyterlab", "nbclient", "ipykernel", "ray", "gguf"}
# Older names of manylinux, and the glibc that each means.
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
Run = Callable[[Sequence[str]], bool]


@dataclass(frozen=True)
class Target:
    """The machine that the packages are for.

    :param python: as in 3.12
    :param platform: a tag of wheels, as in manylinux_2_28_x86_64
    """

    python: str
    platform: str

    def pip_options(self) -> list[str]:
        tags = [part for tag in platform_tags(self.platform) for part in ("--platform", tag)]
        return ["--python-version", self.python, "--implementation", "cp", *tags]


def platform_tags(platform: str) -> list[str]:
    """The tag and all older ones that run there too; pip takes what it is told literally."""
    found = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    if found is None:
        return [platform]
    newest, machine = int(found[1]), found[2]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    return [
        *tags,
        *(f"{name}_{machine}" for minor, name in LEGACY.items() if minor <= newest),
        f"linux_{machine}",
    ]


def chosen(
    pins: Mapping[str, str], target: Target, *, runs_only: bool, without: Iterable[str] = ()
) -> dict[str, str]:
    """Names and versions to gather.

    :param pins: of the lock, and of petals
    :param runs_only: only what servers and experiments need, by what the installed packages say of each other
    :param without: names to leave out, because the machine has them
    """
    left_out = {normalise(name) for name in without}
    names = _needed_for_runs(target) if runs_only else set(pins)
    return {name: version for name, version in sorted(pins.items()) if name in names and name not in left_out}


def _needed_for_runs(target: Target) -> set[str]:
    lines = (REQUIREMENTS / "base.in").read_text(encoding="utf-8").splitlines()
    named = {normalise(Requirement(line).name) for line in lines if line.strip() and not line.startswith("#")}
    waiting, found = (named - NOT_FOR_RUNS) | {"petals", "setuptools"}, set()
    version = {"python_version": target.python, "python_full_version": f"{target.python}.0", "extra": ""}
    while waiting:
        name = waiting.pop()
        found.add(name)
        for requirement in _requirements(name):
            if requirement.marker is None or requirement.marker.evaluate(version):
                waiting |= {normalise(requirement.name)} - found
    return found


def _requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires(name) or []]
    except metadata.PackageNotFoundError:  # only needed elsewhere
        return []


def gather(packages: Mapping[str, str], target: Target, folder: Path, run: Run) -> dict[str, str]:
    """Bring each package into the folder, one by one, so that one failure is known by its name.

    :param run: runs ``pip`` with these arguments; False if that failed
    :return: how each came: wheel, built here, source (to be built there), or missing
    """
    return {name: _bring(f"{name}=={version}", target, folder, run) for name, version in packages.items()}


def _bring(requirement: str, target: Target, folder: Path, run: Run) -> str:
    common = ["--no-deps", "--quiet", "--disable-pip-version-check"]
    into = ["--dest", str(folder), *common]
    if run(["download", *into, "--only-binary=:all:", *target.pip_options(), requirement]):
        return "wheel"
    before = set(folder.glob("*.whl"))
    if run(["wheel", "--wheel-dir", str(folder), *common, requirement]):
        built = set(folder.glob("*.whl")) - before
        if all(path.name.endswith("-none-any.whl") for path in built):
            return "built here"
        for path in built:  # for this machine and Python, not for the other
            path.unlink()
    return "source" if run(["download", *into, "--no-binary=:all:", requirement]) else "missing"


def _pip(arguments: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(argv: Sequence[str] | None = None, run: Run = _pip) -> int:
    """Exit code 1 if a package could not be had."""
    parser = argparse.ArgumentParser(
        prog="python -m swarmlab.health.wheels", description="Gather the locked packages for another machine."
    )
    parser.add_argument("--python", default="3.12", help="of that machine, as in 3.12")
    parser.add_argument(
        "--platform", default="manylinux_2_28_x86_64", help="of that machine, as wheels name it"
    )
    parser.add_argument("--dest", type=Path, default=Path("wheels"))
    parser.add_argument(
        "--runs-only", action="store_true", help="no notebooks, no Ray, no tools for developers"
    )
    parser.add_argument(
        "--without", nargs="*", default=[], metavar="NAME", help="what that machine has, as in torch"
    )
    parser.add_argument("--list", action="store_true", help="say what would be gathered, ask nobody")
    given = parser.parse_args(argv)
    if not re.fullmatch(r"3\.(11|12)", given.python):
        parser.error(f"--python {given.python}: 3.11 or 3.12")
    target = Target(given.python, given.platform)
    pins = {**read_pins(REQUIREMENTS / "lock.txt"), **read_pins(REQUIREMENTS / "petals.txt")}
    packages = chosen(pins, target, runs_only=given.runs_only, without=given.without)
    if given.list:
        print("\n".join(f"{name}=={version}" for name, version in packages.items()))
        return 0
    given.dest.mkdir(parents=True, exist_ok=True)
    came = gather(packages, target, given.dest, run)
    return _report(came, given.dest, target)


def _report(came: Mapping[str, str], folder: Path, target: Target) -> int:
    size_mib = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    print(
        f"{len(came)} packages, {size_mib:.0f} MiB in {folder} for Python {target.python} on {target.platform}"
    )
    for how, note in (
        ("built here", "built here, plain Python"),
        ("source", "brought as source: that machine needs a compiler, or may do without"),
        ("missing", "NOT found"),
    ):
        if names := [name for name, one in came.items() if one == how]:
            print(f"{note}: {', '.join(names)}")
    print(f"there: pip install --no-index --no-deps --find-links {folder.name} {folder.name}/*")
    return int("missing" in came.values())


if __name__ == "__main__":
    sys.exit(main())
