"""Handlers that have died are replaced, and the swarm is told the truth meanwhile; shelf and DHT are stand-ins."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.serving import caretaker as module  # noqa: E402
from swarmlab.bridge.serving.caretaker import Caretaker  # noqa: E402
from swarmlab.bridge.serving.shelf import CALM_S, Shelf  # noqa: E402


class Stage:
    """A shelf as it is, with containers that die when the test wants, on a clock of the test's."""

    def __init__(self):
        self.now_s, self.comes_up, self.told, self.order = 1000.0, True, [], []
        self.deaf, self.port_held = threading.Event(), False
        self.deaf.set()
        make: Any = self._container
        self.shelf = Shelf(make, clock=lambda: self.now_s)
        self.shelf.start()
        self.announcer: Any = SimpleNamespace(serving=True, say_again=self._say, memory_cache=None)
        port: Any = SimpleNamespace(is_alive=lambda: True, still=self._still)
        events: Any = SimpleNamespace(log=lambda *_, **__: None)
        self.caretaker = Caretaker(self.shelf, self.announcer, port, events, threading.Event())

    def _container(self):
        self.container = SimpleNamespace(
            healthy=True, modules=dict, add=lambda _: None, stop=lambda: None, forget=lambda: None,
            start_within=self._start, front=SimpleNamespace(memory_cache=object()),
            is_healthy=lambda: self.container.healthy,
        )  # fmt: skip
        return self.container

    def _start(self, _deadline_s):
        if not self.comes_up:
            self.container.healthy = False
            raise TimeoutError
        self.order.append("new handlers")

    def _say(self):
        self.deaf.wait(30)
        self.told.append((self.now_s, self.announcer.serving))
        self.order.append("serving" if self.announcer.serving else "not serving")

    @contextmanager
    def _still(self):
        yield

    def tick(self, seconds=1.0):
        self.now_s += seconds
        self.caretaker.look_after()


@pytest.fixture
def stage(monkeypatch):
    monkeypatch.setattr(module, "remove_leftovers", lambda *_: 0)
    return Stage()


def test_it_is_said_before_new_handlers_are_made_and_taken_back_when_they_serve(stage):
    stage.container.healthy = False
    stage.tick()
    assert stage.order == ["new handlers", "not serving", "new handlers", "serving"]
    assert stage.announcer.memory_cache is stage.container.front.memory_cache
    stage.tick()
    assert len(stage.told) == 2


def test_as_long_as_none_come_up_it_is_not_said_that_they_serve(stage):
    stage.comes_up = stage.container.healthy = False
    for _ in range(4):
        stage.tick(10.0)
    assert [serving for _, serving in stage.told] == [False]
    stage.comes_up = True
    stage.tick(30.0)
    assert not stage.announcer.serving, "whoever failed that often has to live for a while first"
    stage.tick(30.0)
    assert [serving for _, serving in stage.told] == [False, True]


def test_handlers_that_die_every_few_seconds_do_not_make_the_records_flap(stage):
    for _ in range(200):
        stage.container.healthy = False
        stage.tick()
        stage.tick()
        stage.tick()
    since_s = stage.told[0][0]
    changes = [at_s - since_s for at_s, _ in stage.told]
    assert [serving for _, serving in stage.told[-1:]] == [False]
    assert len(changes) <= 6
    assert changes[-1] < 60, "after the first minute it is clear that they do not live"


def test_one_death_an_hour_is_no_reason_to_wait(stage):
    for _ in range(3):
        stage.tick(CALM_S * 60)
        stage.container.healthy = False
        before_s = stage.now_s + 1.0
        stage.tick()
        assert stage.told[-2:] == [(before_s, False), (before_s, True)]


def test_a_deaf_dht_does_not_keep_handlers_away(stage, monkeypatch):
    monkeypatch.setattr(module, "TELL_S", 0.01)
    stage.deaf.clear()
    stage.container.healthy = False
    stage.tick()
    assert stage.order == ["new handlers", "new handlers"]
    stage.deaf.set()


def test_a_server_that_is_to_end_waits_for_nothing(stage):
    assert not stage.caretaker.wait(0.0, lambda: True)
    stage.caretaker._stopping.set()
    assert stage.caretaker.wait(30.0, lambda: False)


def test_work_beside_it_is_done_and_its_error_is_raised(stage, monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.01)
    worked = threading.Event()

    def work():
        assert worked.wait(30)
        return 7

    stage.container.healthy = False
    stage.shelf.start = lambda: worked.set() or stage.order.append("healed")  # type: ignore[method-assign]
    assert stage.caretaker.beside(work) == 7
    with pytest.raises(OSError, match="full"):
        stage.caretaker.beside(lambda: (_ for _ in ()).throw(OSError("full")))
