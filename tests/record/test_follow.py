from __future__ import annotations

from swarmlab.record.follow import Follower


def append(path, text):
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_each_line_is_told_once_when_it_is_whole(tmp_path):
    follower, steps = Follower(tmp_path, ["steps", "faults"]), tmp_path / "history" / "steps.jsonl"
    assert follower.news() == []  # nothing is written yet
    append(steps, '{"t": 1, "token": 0}\n{"t": 2, "tok')
    assert follower.news() == [("steps", {"t": 1, "token": 0})]
    append(steps, 'en": 1}\n')
    assert follower.news() == [("steps", {"t": 2, "token": 1})]
    assert follower.news() == []


def test_rows_of_all_kinds_come_in_the_order_of_time(tmp_path):
    append(tmp_path / "history" / "steps.jsonl", '{"t": 2}\n{"t": 3}\n')
    append(tmp_path / "history" / "faults.jsonl", '{"t": 2.5}\n')
    append(tmp_path / "history" / "logs.jsonl", '{"t": 0}\n')
    told = Follower(tmp_path, ["steps", "faults"]).news()
    assert [(kind, row["t"]) for kind, row in told] == [("steps", 2), ("faults", 2.5), ("steps", 3)]


def test_a_damaged_line_does_not_stop_the_rest(tmp_path):
    append(tmp_path / "history" / "steps.jsonl", 'what\n[3]\n{"t": 3}\n')
    assert Follower(tmp_path, ["steps"]).news() == [("steps", {"t": 3})]


def test_a_row_whose_time_is_none_is_no_reason_to_fail(tmp_path):
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "steps.jsonl").write_text('{"t": 1.0}\n{"t": "soon"}\n')
    assert [row["t"] for _, row in Follower(tmp_path, ["steps"]).news()] == ["soon", 1.0]
