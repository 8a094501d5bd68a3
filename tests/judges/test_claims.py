"""The claims of the repository: their commands can be typed, and their experiments say what they must show."""

from __future__ import annotations

import re

import pytest

from swarmlab import settings
from swarmlab.analysis.claims import DEFAULT_EXP, DEFAULT_MODEL, overrides_of
from swarmlab.errors import BadInput
from swarmlab.judges.claims import BEGIN, END, ROOT, documents, read_claims, results_readme
from swarmlab.judges.expected import read_expected

CLAIMS = read_claims()
COMMANDS = sorted({one.command for one in CLAIMS})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_a_claim_is_accepted(command):
    config, _ = settings.load(overrides_of(command))
    assert read_expected(config.experiment)


def test_a_command_that_is_none_would_be_noticed():
    with pytest.raises(BadInput):
        settings.load(overrides_of("make run EXP=juggling"))


def test_the_makefile_runs_what_is_checked_here():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^run:.*\n\t(.*)$", text, re.MULTILINE)
    assert recipe
    assert f"EXP ?= {DEFAULT_EXP}\nMODEL ?= {DEFAULT_MODEL}\nARGS ?=\n" in text
    assert recipe[1].endswith("-m swarmlab.run +exp=$(EXP) model=$(MODEL) $(ARGS)")


def test_the_readme_begins_with_the_claims():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END) < text.index("\n## ")


def test_a_document_without_its_marks_is_bad_input(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/artifact.md"):
        (tmp_path / name).write_text("nothing")
    with pytest.raises(BadInput, match="a file with the lines"):
        documents(CLAIMS, tmp_path)


@pytest.mark.parametrize("text", ["a: [", "- 3", "\x00"])
def test_claims_that_cannot_be_read_are_bad_input(tmp_path, text):
    folder = tmp_path / "experiments" / "failover"
    folder.mkdir(parents=True)
    (folder / "claims.yaml").write_text(text)
    with pytest.raises(BadInput):
        read_claims(tmp_path)


def test_the_documents_have_the_claims_as_they_are_now():
    """Who edits claims.yaml or publishes must let `python -m swarmlab.figures` write them again."""
    results = ROOT / "results"
    made = {results / "README.md": results_readme(results, CLAIMS), **documents(CLAIMS)}
    stale = [str(path.relative_to(ROOT)) for path, text in made.items() if path.read_text("utf-8") != text]
    assert not stale, (
        f"not of the present claims and results: {', '.join(stale)}; run python -m swarmlab.figures"
    )
