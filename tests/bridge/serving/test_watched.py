"""The account of a watched server, without one."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge import policy_server  # noqa: E402
from swarmlab.bridge import server as own  # noqa: E402
from swarmlab.bridge.blocks import slow_disk  # noqa: E402
from swarmlab.bridge.blocks.stopwatch import Stopwatch  # noqa: E402
from swarmlab.bridge.events import EventLog, read_events  # noqa: E402
from swarmlab.bridge.serving.gates import Gates  # noqa: E402
from swarmlab.bridge.serving.watched import Watch, _held, _LastLine, slow_down_when  # noqa: E402
from swarmlab.types import Span  # noqa: E402


@pytest.fixture
def watched(tmp_path):
    path = tmp_path / "events.jsonl"
    return Watch(EventLog(path), Gates(tmp_path / "gates"), "petals"), lambda kind: [
        row for row in read_events(path)[0] if row["kind"] == kind
    ]


def test_the_first_load_is_no_move(watched):
    watch, rows = watched
    watch.chose(range(4, 8))
    watch.serves(Span(4, 8), 100.0)
    (row,) = rows("reloads")
    assert (row["old_start"], row["new_start"], row["new_end"]) == (None, 4, 8)
    assert (row["loaded"], row["redundant"], row["no_op"], row["out_of_service_s"]) == (4, 0, False, None)
    assert rows("decisions")[0]["phase"] == "join"


@pytest.mark.parametrize(("start", "redundant", "no_op"), [(4, 4, True), (6, 2, False), (8, 0, False)])
def test_a_reload_counts_what_it_held_already(watched, start, redundant, no_op):
    watch, rows = watched
    watch.serves(Span(4, 8), 100.0)
    watch.decided(moved=True, target=None, reason="Swarm balance quality: 50.0%", gain_tps=None)
    watch.stopping()
    watch.chose(range(start, start + 4))
    watch.serves(Span(start, start + 4), 100.0)
    row = rows("reloads")[-1]
    assert (row["old_start"], row["old_end"], row["new_start"]) == (4, 8, start)
    assert (row["kept"], row["loaded"], row["redundant"], row["no_op"]) == (0, 4, redundant, no_op)
    assert row["lost_block_s"] == pytest.approx(4 * row["out_of_service_s"])
    check, choice = rows("decisions")[-2:]
    assert (check["moved"], check["target"], check["chosen"], check["old"]) == (True, None, None, "4:8")
    assert (choice["phase"], choice["chosen"]) == ("choose", f"{start}:{start + 4}")


def test_only_decisions_to_move_come_to_the_gate(watched, tmp_path):
    watch, _ = watched
    watch.decided(moved=False, target=None, reason="", gain_tps=None)
    assert not (tmp_path / "gates" / "decided.reached").exists()
    watch.decided(moved=True, target=None, reason="", gain_tps=None)
    assert (tmp_path / "gates" / "decided.reached").exists()


def test_a_part_inside_itself_is_timed_once():
    stopwatch = Stopwatch()

    def quantize(depth):
        return quantize_timed(depth - 1) if depth else "done"

    quantize_timed = stopwatch.timed("quantize", quantize)
    convert = stopwatch.timed("convert", lambda: quantize_timed(3))
    assert convert() == "done"
    found = stopwatch.take()
    assert 0 < found["quantize_s"] < 1
    assert found["to_device_s"] >= 0
    assert stopwatch.take()["quantize_s"] == 0.0


def test_a_part_that_fails_is_timed_and_can_be_timed_again():
    stopwatch = Stopwatch()

    def read():
        raise OSError("no disk")

    for _ in range(2):
        with pytest.raises(OSError, match="no disk"):
            stopwatch.timed("read", read)()
    assert stopwatch.take()["read_s"] > 0


def test_announcements_that_are_held_back_live_as_long_afterwards(tmp_path):
    told = []
    declare = _held(lambda *_args, expiration_time, **_kwargs: told.append(expiration_time), Gates(tmp_path))
    declare("uids", expiration_time=100.0)
    assert told[0] == pytest.approx(100.0, abs=5.0)
    gates: Any = Gates(tmp_path)
    gates.pass_through = lambda _point: 7.0
    _held(lambda *_args, expiration_time, **_kwargs: told.append(expiration_time), gates)(
        expiration_time=100.0
    )
    assert told[1] == 107.0


def test_the_disk_is_slow_from_the_moment_that_the_file_is_there(tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(slow_disk, "install", installed.append)
    slow_down_when(tmp_path / "slow", 5.0)
    assert installed == []
    (tmp_path / "slow").touch()
    for _ in range(3000):
        if installed:
            break
        time.sleep(0.01)
    assert installed == [5.0]


def test_the_last_line_of_a_logger_is_kept():
    logger = logging.getLogger("tests.block_selection")
    logger.setLevel(logging.INFO)
    with _LastLine("tests.block_selection") as line:
        logger.info("Swarm balance quality: %.1f%%", 47.7)
    logger.info("later")
    assert line.text == "Swarm balance quality: 47.7%"


def test_the_disk_of_our_server_is_as_fast_as_any_until_the_file_is_there(tmp_path, monkeypatch):
    installed, told = [], []
    monkeypatch.setattr(slow_disk, "install", installed.append)
    monkeypatch.setattr(own, "server", lambda args, channel: told.append((args, channel)))
    policy_server.ours({"read_delay_s": "5.0", "slow_when": str(tmp_path / "slow"), "argv": []}, "channel")
    ((args, channel),) = told
    assert (args["read_delay_s"], channel, installed) == ("0", "channel", [])
    (tmp_path / "slow").touch()
    for _ in range(3000):
        if installed:
            break
        time.sleep(0.01)
    assert installed == [5.0]
