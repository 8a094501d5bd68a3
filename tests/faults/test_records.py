from __future__ import annotations

import threading

import pytest

from swarmlab.faults.lifecycle import FaultFailed, Lifecycle
from swarmlab.faults.records import Join, RecordsLost
from swarmlab.types import ServerRecord, Span

RECORD = ServerRecord("Qa", Span(0, 4), 100.0)


class Played:
    """A server whose records follow its gate, unless told otherwise."""

    def __init__(self, hold, *, lapses=True, serves=True):
        self.hold, self.lapses, self.serves = hold, lapses, serves

    def seen(self):
        return None if self.lapses and self.hold.exists() else RECORD

    def answers(self, name, timeout_s):
        return self.serves and name == "a" and timeout_s > 0


def fault(tmp_path, **how):
    hold, rows = tmp_path / "announce.hold", []
    played = Played(hold, **how)
    steps = RecordsLost("a", hold, played, played.seen, deadline_s=0.05)
    return Lifecycle(steps, rows.append, {"fault": "records_lost", "target": "a"}), hold, rows


def test_records_are_gone_while_the_server_answers_and_come_back(tmp_path):
    lifecycle, hold, rows = fault(tmp_path)
    lifecycle.setup()
    lifecycle.inject()
    assert hold.exists()
    lifecycle.confirm()
    lifecycle.heal()
    lifecycle.cleanup()
    assert not hold.exists()
    assert [row["ok"] for row in rows] == [True] * 5


def test_records_that_do_not_lapse_are_no_fault(tmp_path):
    lifecycle, hold, rows = fault(tmp_path, lapses=False)
    lifecycle.setup()
    lifecycle.inject()
    with pytest.raises(FaultFailed):
        lifecycle.confirm()
    lifecycle.cleanup()
    assert not hold.exists()
    assert not lifecycle.valid
    assert rows[-2]["ok"] is False


def test_a_server_that_does_not_answer_has_more_than_its_records_lost(tmp_path):
    lifecycle, _, _ = fault(tmp_path, serves=False)
    lifecycle.setup()
    lifecycle.inject()
    with pytest.raises(FaultFailed, match="does not answer"):
        lifecycle.confirm()


def test_a_server_that_is_not_announced_cannot_lose_records(tmp_path):
    lifecycle, hold, _ = fault(tmp_path)
    hold.touch()
    with pytest.raises(FaultFailed):
        lifecycle.setup()


def test_a_server_has_joined_once_it_is_announced():
    seen = threading.Event()
    rows = []
    join = Join("wide", seen.set, lambda: RECORD if seen.is_set() else None, 30)
    lifecycle = Lifecycle(join, rows.append, {})
    for stage in (lifecycle.setup, lifecycle.inject, lifecycle.confirm, lifecycle.heal, lifecycle.cleanup):
        stage()
    assert "blocks 0:4" in rows[2]["detail"]


def test_a_server_that_never_comes_is_not_confirmed():
    lifecycle = Lifecycle(Join("wide", lambda: None, lambda: None, 0.05), lambda _: None, {})
    lifecycle.setup()
    lifecycle.inject()
    with pytest.raises(FaultFailed):
        lifecycle.confirm()
