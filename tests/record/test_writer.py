from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.record.writer import KINDS, HistoryWriter, json_safe
from swarmlab.types import Span


class Color(StrEnum):
    RED = "red"


@dataclass
class Point:
    x: int
    where: Span


def rows(folder, kind):
    return [json.loads(line) for line in (folder / f"{kind}.jsonl").read_text().splitlines()]


def test_each_row_is_on_disk_as_soon_as_it_is_written(tmp_path):
    writer = HistoryWriter(tmp_path, start_s=10.0)
    writer.write("steps", "petals", at_s=12.5, scenario="kill_last", token=3)
    assert rows(tmp_path, "steps") == [{"t": 2.5, "arm": "petals", "scenario": "kill_last", "token": 3}]


def test_time_runs_from_the_start_of_the_run_and_never_backwards(tmp_path):
    with HistoryWriter(tmp_path) as writer:
        for token in range(50):
            writer.write("steps", "petals", token=token)
    times = [row["t"] for row in rows(tmp_path, "steps")]
    assert times == sorted(times)
    assert 0 <= times[0] < 60


def test_rows_of_many_threads_stay_whole(tmp_path):
    with HistoryWriter(tmp_path) as writer:
        threads = [
            threading.Thread(
                target=lambda name=name: [writer.write("logs", name, line="x" * 5000) for _ in range(40)]
            )
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = rows(tmp_path, "logs")
    assert len(written) == 160
    assert [row["t"] for row in written] == sorted(row["t"] for row in written)


def test_numpy_dataclasses_enums_and_paths_are_written_plainly(tmp_path):
    value = {
        "n": np.int64(3), "x": np.float32(0.5), "ids": np.array([[1, 2]]), "ok": np.bool_(1), "who": Color.RED,
        "point": Point(1, Span(0, 4)), "path": tmp_path, "set": {2, 1}, 5: None,
    }  # fmt: skip
    assert json_safe(value) == {
        "n": 3, "x": 0.5, "ids": [[1, 2]], "ok": True, "who": "red",
        "point": {"x": 1, "where": {"start": 0, "end": 4}}, "path": str(tmp_path), "set": [1, 2], "5": None,
    }  # fmt: skip


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan"), np.array([np.inf])])
def test_a_number_that_is_not_finite_becomes_null(number):
    assert json_safe(number) in (None, [None])


def test_what_has_no_plain_form_is_refused(tmp_path):
    with HistoryWriter(tmp_path) as writer, pytest.raises(TypeError, match="object"):
        writer.write("steps", "petals", token=object())


@pytest.mark.parametrize("kind", ["stepz", "", "../steps"])
def test_an_unknown_kind_is_refused_and_nothing_is_written(tmp_path, kind):
    with HistoryWriter(tmp_path) as writer, pytest.raises(ValueError, match="no kind of history"):
        writer.write(kind, "petals")
    assert list(tmp_path.iterdir()) == []


def test_t_belongs_to_the_writer(tmp_path):
    with HistoryWriter(tmp_path) as writer, pytest.raises(ValueError, match="at_s"):
        writer.write("steps", "petals", t=3.0)


def test_a_closed_history_takes_no_more_rows(tmp_path):
    writer = HistoryWriter(tmp_path)
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write("steps", "petals")


def test_no_kind_names_a_column_that_the_writer_sets():
    assert not any({"t", "arm"} & set(columns) for columns in KINDS.values())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_every_json_value_survives_as_strict_json(value):
    safe = json_safe(value)
    assert json.loads(json.dumps(safe, allow_nan=False)) == safe
