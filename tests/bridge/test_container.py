"""The blocks outlive the container that serves them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.container import Shelf  # noqa: E402


class FakeContainer:
    def __init__(self, log):
        self.log, self.held, self.healthy, self.started = log, {}, True, False
        self.hangs = threading.Event()
        self.hangs.set()
        log.append(self)

    @property
    def blocks(self):
        return frozenset(self.held)

    def modules(self):
        return dict(self.held)

    def add(self, modules):
        self.held.update(modules)

    def remove(self, blocks):
        for block in blocks:
            del self.held[block]

    def sessions_on(self, blocks):
        return len(list(blocks))

    def is_healthy(self):
        return self.healthy

    def run_in_background(self, await_ready):
        assert await_ready
        self.started = True

    def shutdown(self):
        self.started = False
        self.hangs.wait()


@pytest.fixture
def made():
    return []


@pytest.fixture
def shelf(made):
    make: Any = lambda: FakeContainer(made)  # noqa: E731
    shelf = Shelf(make)
    shelf.start()
    shelf.add({1: "one", 2: "two"})  # pyright: ignore[reportArgumentType]
    return shelf


def test_what_is_put_on_it_is_there_until_it_is_taken(shelf):
    shelf.remove([1])
    assert shelf.blocks == {2}
    assert shelf.modules() == {2: "two"}
    assert shelf.sessions_on([2, 3]) == 2
    assert shelf.is_healthy


def test_healing_makes_another_container_round_the_same_modules(shelf, made):
    made[0].healthy = False
    assert not shelf.is_healthy
    shelf.heal()
    first, second = made
    assert not first.started
    assert second.started
    assert second.held == first.held
    shelf.add({3: "three"})
    assert 3 not in first.held
    shelf.shutdown()
    assert not second.started


def test_a_container_that_cannot_end_any_more_is_left_behind(shelf, made, monkeypatch):
    monkeypatch.setattr("swarmlab.bridge.container.SHUTDOWN_S", 0.05)
    made[0].hangs.clear()
    shelf.heal()
    assert made[1].held == {1: "one", 2: "two"}
    made[0].hangs.set()
