"""Which packages are gathered for a machine without a network, and how each comes; pip itself is played."""

from __future__ import annotations

import pytest

from swarmlab.health import wheels
from swarmlab.health.packages import read_pins
from swarmlab.health.wheels import REQUIREMENTS, Target, chosen, gather, platform_tags

TARGET = Target("3.12", "manylinux_2_28_x86_64")
LOCK = read_pins(REQUIREMENTS / "lock.txt")


def test_older_tags_of_the_platform_are_asked_for_too():
    tags = platform_tags("manylinux_2_28_x86_64")
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} < set(tags)
    assert "manylinux_2_31_x86_64" not in tags
    assert "manylinux2014_aarch64" not in platform_tags("manylinux_2_12_aarch64")
    assert platform_tags("macosx_14_0_arm64") == ["macosx_14_0_arm64"]


def test_the_list_is_the_lock_and_petals(capsys):
    assert wheels.main(["--list"], run=lambda _: pytest.fail("somebody was asked")) == 0
    lines = capsys.readouterr().out.split()
    assert set(lines) == {f"{name}=={version}" for name, version in LOCK.items()} | {"petals==2.2.0.post1"}


def test_for_runs_alone_what_they_need_is_there_and_nothing_for_people(capsys):
    assert wheels.main(["--list", "--runs-only", "--without", "torch", "Mpmath"]) == 0
    names = {line.partition("==")[0] for line in capsys.readouterr().out.split()}
    assert {"petals", "hivemind", "transformers", "tokenizers", "bitsandbytes", "numpy", "pyarrow"} < names
    assert {"grpcio", "msgpack", "pydantic-core"} < names  # what those need in turn
    assert not names & {"torch", "mpmath", "jupyterlab", "ray", "pyright", "ruff", "pytest"}


def test_every_choice_is_in_the_lock():
    assert chosen(LOCK, TARGET, runs_only=True).items() <= LOCK.items()


class Pip:
    """Takes packages from a shelf; each is there as a wheel, as source, both or not at all."""

    def __init__(self, folder, shelf):
        self.folder, self.shelf, self.asked = folder, shelf, []

    def __call__(self, arguments):
        self.asked.append(list(arguments))
        name = arguments[-1].partition("==")[0]
        kind = self.shelf[name]
        if arguments[0] == "download" and "--only-binary=:all:" in arguments:
            return kind == "wheel"
        if arguments[0] == "wheel":
            if kind in ("plain", "native"):
                tag = "py3-none-any" if kind == "plain" else "cp311-cp311-linux_x86_64"
                (self.folder / f"{name}-1-{tag}.whl").touch()
            return kind in ("plain", "native")
        return kind != "missing"


def test_each_package_comes_as_it_can(tmp_path):
    shelf = {"a": "wheel", "b": "plain", "c": "native", "d": "unbuildable", "e": "missing"}
    pip = Pip(tmp_path, shelf)
    came = gather(dict.fromkeys(shelf, "1"), TARGET, tmp_path, pip)
    assert came == {"a": "wheel", "b": "built here", "c": "source", "d": "source", "e": "missing"}
    # one that was built for this machine must not look like one for the other
    assert [path.name for path in tmp_path.iterdir()] == ["b-1-py3-none-any.whl"]
    assert all("--no-deps" in arguments for arguments in pip.asked)
    assert "--python-version" in pip.asked[0]
    assert pip.asked[0][pip.asked[0].index("--python-version") + 1] == "3.12"


@pytest.mark.parametrize(("kind", "code"), [("wheel", 0), ("missing", 1)])
def test_a_package_that_is_missing_is_named(tmp_path, capsys, kind, code):
    shelf = dict.fromkeys([*LOCK, "petals"], "wheel") | {"varint": kind}
    assert wheels.main(["--dest", str(tmp_path / "w")], run=Pip(tmp_path, shelf)) == code
    assert ("NOT found: varint" in capsys.readouterr().out) == bool(code)


def test_a_python_that_the_lock_does_not_support_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        wheels.main(["--python", "3.13", "--list"])
    assert refused.value.code == 2
    assert "3.11 or 3.12" in capsys.readouterr().err
