"""``swarmlab.check`` of published results with something wrong in one of their files."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from swarmlab.check import main
from swarmlab.figures import main as figures
from swarmlab.judges.claims import ROOT
from swarmlab.judges.registry import JUDGES
from swarmlab.judges.tree import KINDS_OF_ALL

REPEAT = "repeats/20270101T000000Z-00000a.json"


@pytest.fixture
def folder(tmp_path):
    """Published results of one small run, and of a repeat of it."""
    path = tmp_path / "results" / "tables" / "scale"
    shutil.copytree(ROOT / "results" / "tables" / "scale", path)
    info, summary = (json.loads((path / file).read_text()) for file in ("run.json", "summary.json"))
    info |= {"id": "20270101T000000Z-00000a"}
    (path / "repeats").mkdir(exist_ok=True)
    (path / REPEAT).write_text(json.dumps({"info": info, "summary": summary}))
    return path


@pytest.fixture
def made(folder):
    """The same with its figures and README."""
    assert figures(["--results", str(folder.parents[1])]) == 0
    return folder


def edited(path, place, value):
    """``value`` None takes away what is there."""
    content = json.loads(path.read_text())
    *steps, last = place
    node = content
    for step in steps:
        node = node[step]
    node[last] = value
    if value is None:
        del node[last]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("file", "place", "value", "words"),
    [
        ("run.json", ["id"], None, "run.json: id: None is not usable; allowed: a text"),
        ("run.json", ["exp"], None, "run.json: exp is None; allowed: the name of an experiment"),
        ("run.json", ["overrides"], "x", "run.json: overrides: 'x' is not usable; allowed: a list of texts"),
        ("run.json", ["arms"], [3], "run.json: arms: [3] is not usable; allowed: a list of texts"),
        ("summary.json", ["arms"], [], "summary.json: arms: [] is not usable; allowed: a mapping"),
        ("summary.json", ["arms", "swarmlab"], 3, "summary.json: arms.swarmlab: 3 is not usable"),
        ("summary.json", ["scenarios", "n=100"], 3, "summary.json: scenarios.n=100: 3 is not usable"),
        ("summary.json", ["scenarios", "n=100", "swarmlab"], 3, ": scenarios.n=100.swarmlab: 3 is not usable"),
        (REPEAT, ["info"], 3, f"{REPEAT}: info: 3 is not usable; allowed: a mapping"),
        (REPEAT, ["info", "id"], None, f"{REPEAT}: info.id: None is not usable; allowed: a text"),
        (REPEAT, ["info", "exp"], "churn", f"{REPEAT}: info.exp: 'churn' is not usable; allowed: scale, as "),
        (REPEAT, ["summary"], [], f"{REPEAT}: summary: [] is not usable; allowed: a mapping"),
        (REPEAT, ["summary", "arms", "swarmlab"], 3, f"{REPEAT}: summary.arms.swarmlab: 3 is not usable"),
    ],
)  # fmt: skip
def test_what_is_wrong_costs_one_line_with_file_field_value_and_what_is_allowed(
    folder, file, place, value, words, capsys
):
    edited(folder / file, place, value)
    for path in (folder.parents[1], folder):
        assert main([str(path)]) == 2
        error = capsys.readouterr().err
        assert f"{folder.name}/" in error
        assert words in error
        assert error.count("\n") == 1


def test_an_experiment_that_nobody_knows_is_answered_with_all_that_there_are(folder, capsys):
    edited(folder / "run.json", ["exp"], "juggling")
    (folder / REPEAT).unlink()
    assert main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert "scale/run.json: exp: 'juggling' is not usable; allowed: one of failover, " in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("file", ["run.json", "summary.json", "config.yaml", REPEAT])
@pytest.mark.parametrize("text", ["{", "null", "[]", "3", "\x00"])
def test_a_file_that_is_none_costs_one_line_that_names_it(folder, file, text, capsys):
    (folder / file).write_text(text)
    assert main([str(folder.parents[1])]) == 2
    error = capsys.readouterr().err
    assert f"{folder.name}/{file}" in error
    assert "allowed: " in error
    assert error.count("\n") == 1


def test_a_summary_that_is_missing_costs_one_line(folder, capsys):
    (folder / "summary.json").unlink()
    assert main([str(folder.parents[1])]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert figures(["--results", str(folder.parents[1])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_that_is_missing_is_named_and_unknown(made, capsys):
    (made / "tables" / "speed.parquet").unlink()
    assert main([str(made)]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "tables/speed.parquet: not there" in printed
    assert "other data" not in printed


def test_a_figure_without_its_table_names_the_file_that_is_published(tmp_path, capsys):
    folder = shutil.copytree(ROOT / "results" / "tables" / "report_389", tmp_path / "tables" / "report_389")
    (folder / "tables" / "blocks.parquet").unlink()
    assert figures(["report_389", "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "tables/blocks.parquet has no rows, or is not there" in error
    assert "jsonl" not in error


def test_a_table_with_other_rows_than_were_written_is_unknown(made, capsys):
    edited(made / "run.json", ["history"], {"speed": {"rows": 10_000, "sha256": ""}})
    assert main([str(made)]) == 3
    assert "speed.parquet: 10000 rows written, " in " ".join(capsys.readouterr().out.split())


def test_every_experiment_says_which_tables_it_has():
    assert KINDS_OF_ALL.keys() == JUDGES.keys()
    for exp, kinds in KINDS_OF_ALL.items():
        assert set(kinds) <= set(JUDGES[exp].FIGURE_KINDS)


def test_one_that_is_published_is_checked_alone_with_its_claims(capsys):
    """Another that cannot even be read does not matter; its own numbers do."""
    assert main([str(ROOT / "results" / "tables" / "scale"), "--all"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("scale.png", "command of scale", "every number is in its run"):
        assert words in printed
    assert "churn" not in printed


def test_one_is_found_from_inside_its_folder_too(folder, monkeypatch, capsys):
    edited(folder / "summary.json", ["scenarios", "n=1000", "swarmlab", "cpu_s_per_day"], 1e9)
    monkeypatch.chdir(folder)
    assert main([os.curdir]) == 1
    assert "cpu_s_per_day" in capsys.readouterr().out


def test_another_that_is_published_is_found_from_within_one(capsys, monkeypatch):
    monkeypatch.chdir(ROOT / "results" / "tables" / "failover")
    assert main(["../report_389"]) == 0
    assert "report_389" in capsys.readouterr().out


def test_a_claim_whose_row_in_the_readme_differs_fails_alone_too(made, capsys):
    assert main([str(made)]) == 0
    readme = made.parents[1] / "README.md"
    readme.write_text(readme.read_text().replace("simulated", "real"))
    assert main([str(made)]) == 1
    assert "differs in" in capsys.readouterr().out


def test_what_must_be_shown_is_given_for_a_run_only(folder, capsys):
    assert main([str(folder), "--expected", "expected.yaml"]) == 2
    assert "--expected" in capsys.readouterr().err
