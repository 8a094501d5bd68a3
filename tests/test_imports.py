"""The import contract of pyproject.toml holds, and each of its rules is able to fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package that a test may spoil."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "src/swarmlab", tmp_path / "src/swarmlab", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def test_the_contract_holds():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("recovery/spoilt.py", "import swarmlab.record", "imports point down only"),
        ("recovery/spoilt.py", "import swarmlab.placement", "imports point down only"),
        ("swarm/spoilt.py", "from swarmlab.bridge import compat", "imports point down only"),
        ("types.py", "import swarmlab.doctor", "imports point down only"),
        ("scenarios/spoilt.py", "def late():\n    import petals", "only the bridge imports"),
        ("swarm/spoilt.py", "import hivemind", "only the bridge imports"),
        ("record/spoilt.py", "from transformers import AutoConfig", "only the bridge imports"),
        ("health/spoilt.py", "import bitsandbytes", "only the bridge imports"),
        ("scenarios/spoilt.py", "from omegaconf import OmegaConf", "only run and settings know hydra"),
        ("bridge/spoilt.py", "import hydra", "only run and settings know hydra"),
        ("analysis/spoilt.py", "import matplotlib.pyplot", "only plots and figures draw"),
        ("placement/spoilt.py", "import pandas", "policies and the simulator stay free of pandas"),
        (
            "recovery/spoilt.py",
            "from pandas import DataFrame",
            "policies and the simulator stay free of pandas",
        ),
        ("sim/spoilt.py", "import pandas", "policies and the simulator stay free of pandas"),
    ],
)
def test_a_forbidden_import_is_found(copy: Path, module: str, line: str, rule: str):
    file = copy / "src/swarmlab" / module
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    with file.open("a") as source:
        source.write(f"\n{line}\n")

    result = lint(copy)

    assert result.returncode == 1, result.stdout + result.stderr
    verdicts = [text for text in result.stdout.splitlines() if text.startswith(rule)]
    assert any("BROKEN" in verdict for verdict in verdicts), result.stdout


def test_a_part_without_a_place_in_the_layers_is_found(copy: Path):
    (copy / "src/swarmlab/helpers.py").write_text("x = 1\n")

    result = lint(copy)

    assert result.returncode == 1
    assert "swarmlab.helpers" in result.stdout
