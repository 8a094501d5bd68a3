from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from swarmlab.check import judge
from swarmlab.errors import BadInput
from swarmlab.figures import draw_run, main, publish
from swarmlab.judges import failover
from swarmlab.judges.claims import ROOT
from swarmlab.record.load import load_run
from swarmlab.record.published import read_published
from swarmlab.record.rundir import RunDir
from tests.analysis.histories import History

CONFIG = {
    "seed": 1, "results_dir": "/home/somebody/results", "model": {"name": "tiny_llama", "path": "/home/somebody/model"},
    "cluster": {"address": None, "public_ip": "8.8.8.8"},
}  # fmt: skip


@pytest.fixture
def run_path(tmp_path):
    run_dir = RunDir.create(
        tmp_path / "results" / "runs", "failover", config=CONFIG, argv=["/home/somebody/run.py"],
        overrides=["seed=1", "cluster.public_ip=8.8.8.8"], seed=1, world="real", arms=[], model={"id": "tiny_llama"},
    )  # fmt: skip
    History().controls().arm("swarmlab", failover_row=True).save(run_dir.path)
    run_dir.finish("complete")
    judge(run_dir.path)
    return run_dir.path


def test_a_judged_run_is_drawn_as_png_and_pdf(run_path):
    png, pdf, *_ = draw_run(run_path)
    assert (png, pdf) == (run_path / "figures" / "failover.png", run_path / "figures" / "failover.pdf")
    with Image.open(png) as image:
        assert image.width > 800
        assert np.asarray(image.convert("L")).min() < 30  # something dark is drawn
    assert pdf.read_bytes().startswith(b"%PDF")


def test_the_same_run_gives_the_same_files(run_path):
    first = [path.read_bytes() for path in draw_run(run_path)]
    assert [path.read_bytes() for path in draw_run(run_path)] == first


def test_published_results_draw_the_same_figure_without_the_raw_history(run_path, tmp_path):
    results = tmp_path / "results"
    folder = publish([run_path], results)
    assert folder == results / "tables" / "failover"
    assert not (folder / "history").exists()
    assert "/home/somebody" not in (folder / "run.json").read_text()
    assert json.loads((folder / "run.json").read_text())["overrides"] == ["seed=1"]
    assert load_run(folder).config == {
        "seed": 1,
        "model": {"name": "tiny_llama"},
        "cluster": {"address": None},
    }
    assert main(["failover", "--results", str(results)]) == 0
    assert (results / "figures" / "failover.png").read_bytes() == draw_run(run_path)[0].read_bytes()


def test_a_name_means_published_results_then_the_latest_run(run_path, tmp_path, capsys):
    results = str(tmp_path / "results")
    assert main(["failover", "--results", results]) == 0
    assert str(run_path / "figures") in capsys.readouterr().out
    assert main(["failover", "--results", results, "--publish"]) == 0
    assert main(["--results", results]) == 0
    assert "runs" not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nowhere"], []])
def test_nothing_to_draw_is_bad_input_in_one_line(tmp_path, arguments, capsys):
    assert main([*arguments, "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_that_was_not_judged_is_bad_input(run_path):
    (run_path / "summary.json").unlink()
    with pytest.raises(BadInput, match="judged"):
        draw_run(run_path)


def test_a_run_of_an_experiment_without_figures_is_bad_input(run_path):
    info = json.loads((run_path / "run.json").read_text())
    (run_path / "run.json").write_text(json.dumps({**info, "exp": "juggling"}))
    with pytest.raises(BadInput, match="juggling"):
        draw_run(run_path)


def test_damaged_arrays_do_not_stop_the_figure(run_path):
    (run_path / "states" / "kill_last.swarmlab.npz").write_bytes(b"PK")
    assert draw_run(run_path)


def test_repeats_are_kept_as_numbers_and_a_name_of_its_own(run_path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run_path, other)
    info = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**info, "id": "second", "seed": 2}))
    results = tmp_path / "results"
    arguments = [str(run_path), str(other), "--publish", "--as", "mine", "--results", str(results)]
    assert main(arguments) == 0
    (one,) = read_published(results)
    assert (one.name, [info["seed"] for info, _ in one.runs]) == ("mine", [1, 2])
    assert {"mine.pdf", "mine_repeats.pdf"} <= {path.name for path in (results / "figures").iterdir()}
    assert "second" in (results / "README.md").read_text()


def changed(path, target, **fields):
    """A copy of a run folder with other fields in its run.json."""
    shutil.copytree(path, target)
    info = json.loads((target / "run.json").read_text())
    (target / "run.json").write_text(json.dumps({**info, **fields}))
    return target


@pytest.mark.parametrize("again", ["shown", "repeat"])
def test_a_run_that_is_given_twice_is_refused(run_path, tmp_path, again, capsys):
    second = changed(run_path, tmp_path / "second", id="second")
    third = changed(second if again == "repeat" else run_path, tmp_path / "third")
    results = tmp_path / "published"
    assert main([*map(str, (run_path, second, third)), "--publish", "--results", str(results)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{third}" in said
    assert f"each run once; {json.loads((third / 'run.json').read_text())['id']} is given twice" in said
    assert not results.exists()


def test_a_run_of_another_experiment_is_no_repeat(run_path, tmp_path):
    other = changed(run_path, tmp_path / "other", id="second", exp="failover_soak")
    with pytest.raises(BadInput, match=r"another run of failover, .*; this one is of failover_soak"):
        publish([run_path, other], tmp_path / "results")


def test_what_does_not_hold_or_had_uncommitted_changes_is_published_with_a_mark(run_path, tmp_path, capsys):
    git = {"commit": "0123456789", "dirty": True}
    changes = changed(run_path, tmp_path / "changes", id="changes", git=git)
    fails = changed(run_path, tmp_path / "fails", id="fails", git={**git, "dirty": False})
    summary = json.loads((fails / "summary.json").read_text())
    (changes / "summary.json").write_text(json.dumps({**summary, "verdict": "holds"}))
    (fails / "summary.json").write_text(json.dumps({**summary, "verdict": "fails"}))
    results = tmp_path / "published"
    assert main([str(changes), str(fails), "--publish", "--results", str(results)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "swarmlab: changes was made with uncommitted changes: its commit is published with a + behind it",
        "swarmlab: fails does not hold: it is published with its verdict, fails",
    ]
    rows = [
        line.split("|")
        for line in (results / "README.md").read_text().splitlines()
        if "/summary.json" in line
    ]
    shown = [(row[6].strip(), row[4].strip(), row[8].strip()) for row in rows]
    assert shown == [("changes", "holds", "0123456+"), ("fails", "fails", "0123456")]


def test_what_is_published_is_not_published_over_itself(run_path, tmp_path, capsys):
    """It has not all that was recorded: its tables would be lost."""
    results = tmp_path / "results"
    folder = publish([run_path], results)
    before = sorted(path.name for path in (folder / "tables").iterdir())
    assert main(["--publish", str(folder), "--results", str(results)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in (folder / "tables").iterdir()) == before


def test_nothing_is_written_if_one_of_several_cannot_be_published(run_path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run_path, other)
    (other / "summary.json").unlink()
    with pytest.raises(BadInput, match="a run that was judged"):
        publish([run_path, other], tmp_path / "results")
    assert not (tmp_path / "results" / "tables").exists()


@pytest.mark.parametrize("arguments", [["--publish"], ["--as", "mine"], ["--nonsense"]])
def test_a_command_line_that_means_nothing_draws_nothing(run_path, tmp_path, arguments, capsys):
    results = tmp_path / "results"
    publish([run_path], results)
    try:
        code = main([*arguments, "--results", str(results)])
    except SystemExit as leaving:
        code = leaving.code
    assert code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (results / "figures").exists()


def test_simulations_of_one_real_run_are_no_repeats_of_each_other(run_path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run_path, other)
    for path, more in ((run_path, {}), (other, {"id": "second"})):
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**info, **more, "compared_with": {"id": "real"}}))
    with pytest.raises(BadInput, match="another real run than real"):
        publish([run_path, other], tmp_path / "results")


def test_a_run_that_did_not_complete_is_not_published(run_path, tmp_path):
    info = json.loads((run_path / "run.json").read_text())
    (run_path / "run.json").write_text(json.dumps({**info, "status": "interrupted"}))
    with pytest.raises(BadInput, match="a complete run; this one is interrupted"):
        publish([run_path], tmp_path / "results")


def test_publishing_again_leaves_nothing_of_the_earlier_run(run_path, tmp_path):
    results = tmp_path / "results"
    old = publish([run_path], results) / "repeats"
    old.mkdir()
    (old / "earlier.json").write_text("{}")
    publish([run_path], results)
    assert not list(old.iterdir())


def test_several_figures_of_one_run_are_named_apart(run_path, monkeypatch):
    one = Figure()
    monkeypatch.setattr(failover, "draw", lambda *_: {"": one, "again": one})
    assert [path.name for path in draw_run(run_path)] == [
        "failover.png", "failover.pdf", "failover_again.png", "failover_again.pdf",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "results" / "tables").iterdir() if path.is_dir())
)
def test_a_run_of_which_all_that_was_recorded_is_gone_is_bad_input_in_one_line(tmp_path, name, capsys):
    path = shutil.copytree(ROOT / "results" / "tables" / name, tmp_path / name)
    shutil.rmtree(path / "tables")
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (path / "history").mkdir()
    assert main([str(path)]) == 2
