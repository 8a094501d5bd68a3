from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput
from swarmlab.record.load import DamagedRun, load_run, read_jsonl, write_tables
from swarmlab.record.rundir import RunDir
from swarmlab.record.writer import KINDS

ROWS = [
    {"t": 0.5, "arm": "petals", "scenario": "kill_last", "token": 0, "token_ids": [1, 2]},
    {
        "t": 0.75,
        "arm": "swärmlab",
        "scenario": "kill_last",
        "token": 1,
        "token_ids": None,
        "new": {"x": [1.5]},
    },
]


@pytest.fixture
def run_dir(tmp_path):
    return RunDir.create(
        tmp_path, "failover", config={"tolerance": 3e-4}, argv=[], overrides=[], seed=0, world="real", arms=[], model={}
    )  # fmt: skip


def fill(run_dir):
    for row in ROWS:
        fields = {name: value for name, value in row.items() if name not in ("t", "arm")}
        run_dir.history.write("steps", row["arm"], at_s=run_dir.history.start_s + row["t"], **fields)
    return load_run(run_dir.path)


def test_rows_come_back_with_every_column_of_their_kind(run_dir):
    run = fill(run_dir)
    blank = dict.fromkeys(KINDS["steps"])
    assert run.history("steps") == [{**blank, **row} for row in ROWS]
    assert run.kinds == ("steps",)
    assert run.config == {"tolerance": 3e-4}


def test_a_kind_that_was_never_written_is_empty_and_an_unknown_one_an_error(run_dir):
    run = load_run(run_dir.path)
    assert run.history("floors") == []
    assert list(run.frame("floors").columns) == ["t", "arm", *KINDS["floors"]]
    with pytest.raises(ValueError, match="no kind"):
        run.history("stepz")


def test_a_frame_has_the_columns_of_the_kind_and_those_that_rows_add(run_dir):
    frame = fill(run_dir).frame("steps")
    assert list(frame.columns) == ["t", "arm", *KINDS["steps"], "new"]
    assert frame["token"].tolist() == [0, 1]


def test_tables_hold_the_same_rows_when_the_raw_history_is_gone(run_dir):
    run = fill(run_dir)
    before = [
        {name: row.get(name) for name in [*KINDS["steps"], "t", "arm", "new"]} for row in run.history("steps")
    ]
    assert [path.name for path in write_tables(run)] == ["steps.parquet"]
    shutil.rmtree(run_dir.path / "history")
    assert run.history("steps") == before


def test_a_file_of_a_raw_history_that_was_removed_is_damage(run_dir):
    """Its table would pass for the record, but nobody can say what was recorded."""
    run = fill(run_dir)
    write_tables(run)
    (run_dir.path / "history" / "steps.jsonl").unlink()
    with pytest.raises(DamagedRun, match=r"history/steps\.jsonl was removed"):
        run.history("steps")


def test_a_column_of_mixed_types_becomes_text_in_the_table(run_dir):
    for detail in ("gone", {"pid": 1}, 3, None):
        run_dir.history.write("faults", "petals", detail=detail)
    run = load_run(run_dir.path)
    write_tables(run)
    shutil.rmtree(run_dir.path / "history")
    assert [row["detail"] for row in run.history("faults")] == ['"gone"', '{"pid": 1}', "3", None]


def test_only_the_kinds_asked_for_are_written_elsewhere(run_dir, tmp_path):
    run_dir.history.write("logs", "petals", line="x")
    written = write_tables(fill(run_dir), tmp_path / "published", ["steps", "floors"])
    assert written == [tmp_path / "published" / "steps.parquet"]


@given(
    cut=st.integers(min_value=0),
    rows=st.lists(st.dictionaries(st.text(max_size=5), st.text() | st.integers()), max_size=4),
)
def test_a_history_torn_at_any_byte_loses_at_most_the_torn_row(tmp_path_factory, cut, rows):
    path = tmp_path_factory.mktemp("torn") / "steps.jsonl"
    whole = b"".join(
        json.dumps(row, ensure_ascii=False).encode(errors="surrogatepass") + b"\n" for row in rows
    )
    kept = whole[: cut % (len(whole) + 1)]
    path.write_bytes(kept)
    read = read_jsonl(path)
    finished = kept.count(b"\n")
    assert read == rows[: len(read)]
    assert finished <= len(read) <= finished + 1


@given(line=st.integers(min_value=0, max_value=2), byte=st.integers(min_value=0, max_value=9))
def test_damage_anywhere_else_is_reported_with_its_line(tmp_path_factory, line, byte):
    path = tmp_path_factory.mktemp("damaged") / "steps.jsonl"
    lines = [b'{"t": 1.5}'] * 3
    lines[line] = lines[line][:byte] + b"\x00" + lines[line][byte + 1 :]
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(DamagedRun, match=f"steps.jsonl line {line + 1} "):
        read_jsonl(path)


@pytest.mark.parametrize("line", [b"", b"3", b"[1]", b"null"])
def test_a_finished_line_that_is_no_object_is_damage(tmp_path, line):
    (tmp_path / "steps.jsonl").write_bytes(b'{"t": 1}\n' + line + b"\n")
    with pytest.raises(DamagedRun, match="line 2"):
        read_jsonl(tmp_path / "steps.jsonl")


def test_states_come_back_or_are_none(run_dir):
    hidden = np.ones((1, 2, 3), np.float32)
    np.savez(run_dir.states_path("kill_last", "petals"), hidden=hidden, token_ids=np.array([[1, 2]]))
    run = load_run(run_dir.path)
    states = run.states("kill_last", "petals")
    assert states is not None
    assert np.array_equal(states["hidden"], hidden)
    assert run.states("kill_last", "swarmlab") is None


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_states_that_are_cut_off_are_damage(run_dir, share):
    path = run_dir.states_path("kill_last", "petals")
    np.savez(path, hidden=np.ones((1, 50, 30), np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DamagedRun, match=r"kill_last\.petals\.npz"):
        load_run(run_dir.path).states("kill_last", "petals")


def test_states_never_run_code(run_dir):
    np.savez(run_dir.states_path("kill_last", "petals"), hidden=np.array([object()], dtype=object))
    with pytest.raises(DamagedRun):
        load_run(run_dir.path).states("kill_last", "petals")


def test_a_folder_without_a_run_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="run_dir"):
        load_run(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"exp": 3}'])
def test_a_run_json_that_cannot_be_read_is_damage(run_dir, text):
    (run_dir.path / "run.json").write_text(text)
    with pytest.raises(DamagedRun, match=r"run\.json"):
        load_run(run_dir.path)
