from __future__ import annotations

import json
import os
import threading
import time

import pytest

from swarmlab.bridge.events import EventLog, read_events
from swarmlab.types import Span


def test_a_row_is_on_disk_when_emit_returns_with_its_kind_and_the_time(tmp_path):
    before_s = time.monotonic()
    EventLog(tmp_path / "new" / "events.jsonl").emit("reloads", server="a", kept=3)
    row = json.loads((tmp_path / "new" / "events.jsonl").read_text())
    assert {**row, "mono_s": 0} == {"kind": "reloads", "mono_s": 0, "server": "a", "kept": 3}
    assert before_s <= row["mono_s"] <= time.monotonic()


def test_a_row_may_say_when_it_happened(tmp_path):
    EventLog(tmp_path / "e").emit("servers", at_s=12.5, server="a")
    assert read_events(tmp_path / "e")[0][0]["mono_s"] == 12.5


def test_values_take_their_plain_form(tmp_path):
    EventLog(tmp_path / "e").emit("logs", level="info", line=tmp_path, span=Span(1, 3), nothing=float("nan"))
    row = read_events(tmp_path / "e")[0][0]
    assert (row["span"], row["nothing"]) == ({"start": 1, "end": 3}, None)


def test_a_kind_that_the_history_does_not_know_is_refused_also_without_a_file(tmp_path):
    for log in (EventLog(tmp_path / "e"), EventLog(None)):
        with pytest.raises(ValueError, match="no kind"):
            log.emit("relods", server="a")
    assert read_events(tmp_path / "e") == ([], 0)


def test_rows_of_many_threads_never_mix(tmp_path):
    log = EventLog(tmp_path / "e")

    def write(name):
        for i in range(50):
            log.log("info", f"{name} {i}" * 50)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_events(tmp_path / "e")[0]) == 200


def test_reading_goes_on_where_it_stopped_and_waits_for_the_end_of_a_line(tmp_path):
    path = tmp_path / "e"
    assert read_events(path) == ([], 0)
    path.write_bytes(b'{"kind": "logs"}\n{"kind": "se')
    rows, offset = read_events(path)
    assert [row["kind"] for row in rows] == ["logs"]
    with path.open("ab") as file:
        file.write(b'rvers"}\n')
    assert [row["kind"] for row in read_events(path, offset)[0]] == ["servers"]


def test_a_line_that_a_full_disk_cut_short_is_left_out(tmp_path):
    (tmp_path / "e").write_text('{"kind": "lo{"kind": "logs"}\n{"kind": "servers"}\n')
    assert [row["kind"] for row in read_events(tmp_path / "e")[0]] == ["servers"]


def test_after_a_full_disk_the_next_line_is_whole_again(small_disk):
    log, ballast = EventLog(small_disk.folder / "e"), small_disk.fill(leave_bytes=4096)
    for number in range(100):
        log.log("info", f"line {number}")
    told = len(read_events(small_disk.folder / "e")[0])
    assert 0 < told < 100
    ballast.unlink()
    log.log("info", "space again")
    rows = read_events(small_disk.folder / "e")[0]
    assert [row["line"] for row in rows] == [f"line {number}" for number in range(told)] + ["space again"]


def test_a_full_disk_does_not_stop_the_server():
    log = EventLog("/dev/full")
    log.emit("logs", level="info", line="x")
    with pytest.raises(OSError, match="No space"):
        os.write(log._fd or 0, b"x")
