"""Following a client over a real socket: how it ends, and what its deadline counts."""

from __future__ import annotations

import socket
import threading

import pytest

from swarmlab.channel import Channel
from swarmlab.workload import drive
from swarmlab.workload.drive import End, follow, step_row


@pytest.fixture
def ends():
    """The orchestrator's end and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def never(message):
    pytest.fail(f"a fault point that nobody sent: {message}")


def test_every_event_arrives_in_order_and_done_is_the_last(ends):
    ours, client = ends
    for event in ("ready", "step", "done", "after the end"):
        client.send({"event": event})
    seen = []
    assert follow(ours, 10, lambda message: seen.append(message["event"]), never) is End.DONE
    assert seen == ["ready", "step", "done"]


def test_a_client_that_says_so_ended_with_an_exception(ends):
    ours, client = ends
    client.send({"event": "error", "type": "E", "message": "m"})
    client.send({"event": "done"})
    assert follow(ours, 10, lambda _: None, never) is End.EXCEPTION


@pytest.mark.parametrize(
    ("events", "end"), [(["step"], End.LOST), (["step", "error"], End.EXCEPTION), ([], End.LOST)]
)
def test_a_client_that_dies_is_lost_unless_it_said_why(ends, events, end):
    ours, client = ends
    for event in events:
        client.send({"event": event})
    client.close()
    assert follow(ours, 10, lambda _: None, never) is end


def test_a_message_cut_in_the_middle_by_death_is_not_read(ends):
    ours, client = ends
    client._socket.sendall(b'{"event": "step"}\n{"event": "do')
    client.close()
    seen = []
    assert follow(ours, 10, seen.append, never) is End.LOST
    assert seen == [{"event": "step"}]


def test_a_client_that_is_not_done_at_the_deadline_hangs(ends):
    ours, client = ends
    client.send({"event": "step"})
    seen = []
    assert follow(ours, 0.05, seen.append, never) is End.HANG
    assert seen == [{"event": "step"}]


def test_a_client_that_talks_for_ever_hangs_too(ends, monkeypatch):
    """The deadline is for all of it, not from one event to the next."""
    ours, client = ends
    now_s = [0.0]
    monkeypatch.setattr(drive.time, "monotonic", lambda: now_s[0])
    recv, waits = ours.recv, []

    def chatter(deadline_s):
        waits.append(deadline_s)
        if deadline_s <= 0:
            raise TimeoutError
        client.send({"event": "step"})
        now_s[0] += 1
        return recv()

    monkeypatch.setattr(ours, "recv", chatter)
    assert follow(ours, 3, lambda _: None, never) is End.HANG
    assert waits == [3, 2, 1, 0]


def test_time_at_fault_points_does_not_count(ends, monkeypatch):
    """Two waits of an hour each inside a deadline of ten seconds; the client goes on only when told."""
    ours, client = ends
    now_s = [0.0]
    monkeypatch.setattr(drive.time, "monotonic", lambda: now_s[0])
    recv, waits, points = ours.recv, [], []

    def counted(deadline_s):
        waits.append(deadline_s)
        return recv(5)

    def at_fault_point(message):
        points.append(message["token"])
        now_s[0] += 3600

    def on_event(_):
        now_s[0] += 1

    monkeypatch.setattr(ours, "recv", counted)
    for message in (
        {"event": "step"},
        {"event": "at", "token": 1},
        {"event": "at", "token": 2},
        {"event": "done"},
    ):
        client.send(message)
    assert follow(ours, 10, on_event, at_fault_point) is End.DONE
    assert points == [1, 2]
    assert waits == [10, 9, 9, 9]
    assert [client.recv(5), client.recv(5)] == [{"go": True}] * 2


def test_the_client_waits_while_a_fault_is_done(ends):
    ours, client = ends
    order = []

    def run_client():
        client.send({"event": "at", "token": 3})
        assert client.recv(30) == {"go": True}
        order.append("client goes on")
        client.send({"event": "done"})

    thread = threading.Thread(target=run_client)
    thread.start()
    assert follow(ours, 30, lambda _: None, lambda _: order.append("fault")) is End.DONE
    thread.join(30)
    assert order == ["fault", "client goes on"]


def test_whatever_a_fault_raises_comes_out(ends):
    ours, client = ends
    client.send({"event": "at"})

    def fail(_):
        raise RuntimeError("the nemesis stumbled")

    with pytest.raises(RuntimeError, match="stumbled"):
        follow(ours, 10, lambda _: None, fail)


def test_a_client_that_died_at_its_fault_point_is_lost(ends):
    ours, client = ends
    client.send({"event": "at"})
    assert follow(ours, 10, lambda _: None, lambda _: client.close()) is End.LOST


def test_a_step_becomes_a_row():
    message = {"event": "step", "token": 4, "phase": "decode", "seconds": 0.5, "token_ids": [7], "at_s": 1.0}
    row = step_row(message, retries=2)
    assert row["retries"] == 2
    assert {name: row[name] for name in ("token", "phase", "seconds", "token_ids", "session")} == {
        "token": 4, "phase": "decode", "seconds": 0.5, "token_ids": [7], "session": 0
    }  # fmt: skip
