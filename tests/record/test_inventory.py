"""A complete run whose history was changed afterwards says so."""

from __future__ import annotations

import hashlib
import json

import pytest

from swarmlab.record.inventory import check_inventory, take_inventory
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir, Status


def finished(root, status: Status = "complete"):
    run_dir = RunDir.create(
        root, "failover", config={}, argv=[], overrides=[], seed=0, world="real", arms=[], model={}
    )  # fmt: skip
    for token in range(10):
        run_dir.history.write("steps", "swarmlab", token=token)
    run_dir.history.write("outcomes", "swarmlab", outcome="identical")
    run_dir.finish(status)
    return run_dir.path


def against(path):
    return {name: words for name, sound, words in check_inventory(load_run(path)) if not sound}


def forget_inventory(path):
    info = json.loads((path / "run.json").read_text())
    del info["history"]
    (path / "run.json").write_text(json.dumps(info))


def test_run_json_counts_the_rows_of_a_complete_run(tmp_path):
    path = finished(tmp_path)
    written = json.loads((path / "run.json").read_text())["history"]
    steps = (path / "history" / "steps.jsonl").read_bytes()
    assert written["steps"] == {"rows": 10, "sha256": hashlib.sha256(steps).hexdigest()}
    assert {kind: entry["rows"] for kind, entry in written.items()} == {"steps": 10, "outcomes": 1}
    assert [sound for _, sound, _ in check_inventory(load_run(path))] == [True, True]


def test_files_larger_than_a_chunk_are_counted_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("swarmlab.record.inventory.CHUNK_BYTES", 7)
    path = finished(tmp_path)
    steps = (path / "history" / "steps.jsonl").read_bytes()
    assert take_inventory(path / "history")["steps"] == {
        "rows": 10, "sha256": hashlib.sha256(steps).hexdigest(),
    }  # fmt: skip


def half(lines):
    return lines[:5]


def without_one(lines):
    return lines[:3] + lines[4:]


def torn(lines):
    return [*lines[:-1], lines[-1][:8]]


def other_order(lines):
    return lines[::-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (half, "10 rows written, 5 rows found"),
        (without_one, "10 rows written, 9 rows found"),
        (torn, "10 rows written, 9 rows found"),
        (other_order, "10 rows written, 10 rows found with other content"),
    ],
)
def test_rows_that_were_lost_or_changed_are_named_with_what_was_expected(tmp_path, change, words):
    path = finished(tmp_path)
    steps = path / "history" / "steps.jsonl"
    steps.write_bytes(b"".join(change(steps.read_bytes().splitlines(keepends=True))))
    found = against(path)
    assert list(found) == ["history/steps.jsonl"]
    assert words in found["history/steps.jsonl"]


def test_files_that_are_gone_or_new_are_named(tmp_path):
    path = finished(tmp_path)
    (path / "history" / "outcomes.jsonl").rename(path / "history" / "floors.jsonl")
    assert against(path) == {
        "history/outcomes.jsonl": "1 rows written, no file found",
        "history/floors.jsonl": "no file written, 1 rows found",
    }


@pytest.mark.parametrize("written", [None, 3, [], {"steps": 3, "outcomes": None}])
def test_an_inventory_that_makes_no_sense_agrees_with_nothing(tmp_path, written):
    path = finished(tmp_path)
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "history": written}))
    assert against(path)


def test_runs_of_before_have_no_inventory_but_a_torn_line_is_noticed(tmp_path):
    path = finished(tmp_path)
    forget_inventory(path)
    assert not against(path)
    steps = path / "history" / "steps.jsonl"
    steps.write_bytes(steps.read_bytes()[:-3])
    assert against(path) == {"history/steps.jsonl": "its last line is torn, in a run that is complete"}


def test_of_a_run_that_did_not_complete_nothing_is_said(tmp_path):
    path = finished(tmp_path, "interrupted")
    assert "history" not in json.loads((path / "run.json").read_text())
    assert list(check_inventory(load_run(path))) == []


def test_a_signal_while_the_history_is_counted_does_not_leave_a_run_that_goes_on(tmp_path, monkeypatch):
    def interrupted(_folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("swarmlab.record.rundir.take_inventory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path)
    (path,) = tmp_path.glob("failover/2*")
    info = json.loads((path / "run.json").read_text())
    assert info["status"] == "interrupted"
    assert info["reason"] == "while its history was counted: KeyboardInterrupt"
