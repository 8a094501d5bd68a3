"""The DHT as several threads of one server use it, with a stand-in for hivemind's."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.serving.dht_port import DhtPort  # noqa: E402
from swarmlab.bridge.snapshot import RawRecord  # noqa: E402
from swarmlab.placement.testimony import Answer, Answers  # noqa: E402
from swarmlab.types import ServerRecord, Span  # noqa: E402


class FakeDht:
    """Answers at once, or never; notices two senders at a time."""

    peer_id = "me"

    def __init__(self, answer=None):
        self.answer, self.alive, self.senders, self.most = answer, True, 0, 0

    def is_alive(self):
        return self.alive

    def run_coroutine(self, coro, return_future):
        assert return_future
        pickle.dumps(coro)  # it goes to the DHT's process
        self.senders += 1
        self.most = max(self.most, self.senders)
        future = Future()
        if self.answer is not None:
            future.set_result(self.answer)
        threading.Event().wait(0.001)
        self.senders -= 1
        return future


def test_a_question_that_is_not_answered_ends_at_its_deadline():
    with pytest.raises(TimeoutError):
        DhtPort(FakeDht(), answer_s=0.05).run_coroutine(None)
    assert not DhtPort(FakeDht(), answer_s=0.05).run_coroutine(None, return_future=True).done()


def test_a_dht_that_has_died_is_not_waited_for():
    dht = FakeDht()
    dht.alive = False
    with pytest.raises(ConnectionError):
        DhtPort(dht).run_coroutine(None)


def test_one_thread_sends_at_a_time_and_nobody_while_it_is_to_be_still():
    dht = FakeDht(answer=1)
    port = DhtPort(dht)
    threads = [threading.Thread(target=lambda: [port.run_coroutine(None) for _ in range(10)]) for _ in "abcd"]
    with port.still():
        for thread in threads:
            thread.start()
        assert dht.most == 0
    for thread in threads:
        thread.join()
    assert dht.most == 1


def test_all_else_is_hiveminds_own():
    assert DhtPort(SimpleNamespace(peer_id="x", num_workers=3)).num_workers == 3


def test_a_view_is_on_the_dhts_clock():
    from hivemind.utils import get_dht_time

    now_s = get_dht_time()
    dht = FakeDht(answer=[RawRecord(1, "a", (2, 5.0, {"start_block": 0, "end_block": 3}), now_s + 30)])
    view = DhtPort(dht).view("m", 4)
    assert view.servers[0].span == Span(0, 3)
    assert now_s <= view.seen_at_s <= get_dht_time()


def test_servers_are_asked_in_the_dhts_process():
    dht = FakeDht(answer={"a": Answer.SERVES})
    assert DhtPort(dht).ask([ServerRecord("a", Span(0, 2), 1.0)], "m") == Answers({"a": Answer.SERVES})
