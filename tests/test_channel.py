"""JSON lines over a unix socket: whole messages, deadlines, and ends that die."""

from __future__ import annotations

import socket
import threading

import pytest

from swarmlab.channel import Channel, ChannelClosed, Listener, connect


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ends = Channel(ours), Channel(theirs)
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_whole_and_in_order(pair):
    here, there = pair
    sent = [{"n": n, "text": "é\n" * n} for n in range(50)]
    for message in sent:
        here.send(message)
    assert [there.recv(1) for _ in sent] == sent


def test_a_large_message_passes(pair):
    here, there = pair
    message = {"data": "x" * 3_000_000}
    sender = threading.Thread(target=here.send, args=[message])
    sender.start()
    assert there.recv(10) == message
    sender.join()


def test_messages_of_several_threads_do_not_mix(pair):
    here, there = pair
    text = "y" * 100_000
    threads = [threading.Thread(target=here.send, args=[{"n": n, "text": text}]) for n in range(8)]
    for thread in threads:
        thread.start()
    assert sorted(there.recv(10)["n"] for _ in threads) == list(range(8))
    for thread in threads:
        thread.join()


def test_nothing_in_time_is_a_timeout_and_half_a_message_is_kept(pair):
    here, there = pair
    here._socket.sendall(b'{"a"')
    with pytest.raises(TimeoutError):
        there.recv(0.01)
    here._socket.sendall(b": 1}\n")
    assert there.recv(1) == {"a": 1}


def test_what_was_sent_before_the_end_is_still_received(pair):
    here, there = pair
    here.send({"last": True})
    here.close()
    assert there.recv(1) == {"last": True}
    with pytest.raises(ChannelClosed):
        there.recv(1)
    with pytest.raises(ChannelClosed):
        there.send({"into": "the void"})


def test_listener_accepts_who_connects(tmp_path):
    listener = Listener(tmp_path / "s")
    process = connect(str(tmp_path / "s"))
    channel = listener.accept(5, alive=lambda: True)
    process.send({"hello": 1})
    assert channel.recv(5) == {"hello": 1}
    listener.close()
    assert not (tmp_path / "s").exists()
    channel.close()
    process.close()


def test_listener_does_not_wait_for_the_dead(tmp_path):
    listener = Listener(tmp_path / "s")
    with pytest.raises(ChannelClosed, match="ended before"):
        listener.accept(3600, alive=lambda: False)
    with pytest.raises(TimeoutError):
        listener.accept(0.01, alive=lambda: True)
    listener.close()


def test_a_path_that_the_kernel_would_cut_is_refused(tmp_path):
    with pytest.raises(OSError, match="too long"):
        Listener(tmp_path / ("x" * 120))
