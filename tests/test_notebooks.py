"""Every notebook runs from top to bottom on what is stored, without a swarm, and is kept without outputs."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

RESULTS = Path(__file__).parents[1] / "results" / "tables"
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
ALLOWED = ("swarmlab.record", "swarmlab.analysis")


def cells(path, kind):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def needs(notebook):
    """Names of the published results that it reads."""
    return notebook.metadata["swarmlab"]["needs"]


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_says_what_it_needs(path):
    source = "\n".join(cell.source for cell in cells(path, "code"))
    assert all(f'"{name}"' in source for name in needs(nbformat.read(path, as_version=4)))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path):
    for cell in cells(path, "code"):
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_reads_stored_runs_through_record_and_analysis_only(path):
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = [name for name in names if name.startswith("swarmlab")]
            assert all(name.startswith(ALLOWED) for name in ours), ours


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_tells_a_story(path):
    """Words before the first code, and a cell that fits on a screen."""
    assert nbformat.read(path, as_version=4).cells[0].source.startswith("# ")
    assert all(len(cell.source.splitlines()) <= 25 for cell in cells(path, "code"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.timeout(300)
def test_it_runs(path, monkeypatch):
    # on stored results, not on whatever this machine ran last
    monkeypatch.setenv("SWARMLAB_RUN", str(RESULTS / "failover"))
    notebook = nbformat.read(path, as_version=4)
    missing = [name for name in needs(notebook) if not (RESULTS / name / "run.json").exists()]
    if missing:
        pytest.skip(f"not published yet: {', '.join(missing)}")
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    errors = [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.output_type == "error"]
    assert not errors
