"""The blocks outlive the container that serves them."""

from __future__ import annotations

from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.serving import shelf as module  # noqa: E402
from swarmlab.bridge.serving.shelf import Shelf  # noqa: E402


class FakeContainer:
    def __init__(self, log, comes_up=True):
        self.log, self.held, self.healthy, self.started = log, {}, True, False
        self.comes_up = comes_up
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

    def start_within(self, deadline_s):
        if not self.comes_up:
            self.healthy = False
            raise TimeoutError(f"not within {deadline_s} s")
        self.started = True

    def stop(self):
        self.started = False

    def forget(self):
        self.held.clear()


class Stage:
    """A shelf with two blocks, and a clock."""

    def __init__(self):
        self.made: list[Any] = []
        self.comes_up, self.now_s = True, 1000.0
        make: Any = lambda: FakeContainer(self.made, self.comes_up)  # noqa: E731
        self.shelf: Any = Shelf(make, clock=lambda: self.now_s)
        self.shelf.start()
        self.shelf.add({1: "one", 2: "two"})

    def heal(self):
        self.made[-1].healthy = False
        assert not self.shelf.is_healthy
        return self.shelf.heal()


@pytest.fixture
def stage():
    return Stage()


def test_what_is_put_on_it_is_there_until_it_is_taken(stage):
    stage.shelf.remove([1])
    assert stage.shelf.blocks == {2}
    assert stage.shelf.modules() == {2: "two"}
    assert stage.shelf.sessions_on([2, 3]) == 2
    assert stage.shelf.is_healthy


def test_healing_makes_another_container_round_the_same_modules(stage):
    assert stage.heal()
    first, second = stage.made
    assert not first.started
    assert first.held == {}, "a thread of the old one that was left behind must not keep blocks in memory"
    assert second.started
    assert second.held == {1: "one", 2: "two"}
    stage.shelf.add({3: "three"})
    assert stage.shelf.blocks == {1, 2, 3}
    stage.shelf.shutdown()
    assert not second.started


def test_handlers_that_die_again_and_again_get_their_successors_later_and_later(stage):
    assert stage.heal()
    pauses = []
    for _ in range(7):
        since_s = stage.now_s
        while not stage.heal():
            stage.now_s += 0.5
        pauses.append(stage.now_s - since_s)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    stage.now_s += module.CALM_S + 1
    assert stage.heal(), "a quiet minute makes up for it"


def test_one_that_has_died_soon_is_trusted_again_when_it_has_outlived_the_pause(stage):
    assert stage.shelf.is_proven
    assert stage.heal()
    assert stage.shelf.is_proven, "the first death may be chance"
    stage.now_s += 1.0
    assert stage.heal()
    assert not stage.shelf.is_proven
    stage.now_s += 2.0
    assert stage.shelf.is_proven
    stage.made[-1].healthy = False
    assert not stage.shelf.is_proven


def test_a_handler_may_die_again_and_again_for_as_long_as_the_server_lives(stage):
    stage.shelf._setbacks = 5000
    stage.heal()
    since_s = stage.now_s
    while not stage.heal():
        stage.now_s += 0.5
    assert stage.now_s - since_s == module.MAX_PAUSE_S


def test_containers_that_do_not_come_up_are_tried_again_and_at_last_the_server_ends(stage):
    stage.comes_up = False
    for _ in range(module.MAX_TRIES - 1):
        assert not stage.heal()
        made = len(stage.made)
        assert not stage.heal(), "not before the pause is over"
        assert len(stage.made) == made
        stage.now_s += module.MAX_PAUSE_S
    with pytest.raises(RuntimeError, match=r"did not come up 6 times, the last: not within 60\.0 s"):
        stage.heal()
    assert stage.shelf.blocks == {1, 2}, "the blocks stay, whatever becomes of the containers"


def test_one_that_comes_up_at_last_serves_the_blocks(stage):
    stage.comes_up = False
    assert not stage.heal()
    stage.comes_up = True
    stage.now_s += 10.0
    assert stage.heal()
    assert stage.made[-1].started
    assert stage.shelf.blocks == {1, 2}


def test_a_server_ends_while_somebody_heals(stage):
    with stage.shelf._lock:
        stage.shelf.shutdown()
    assert not stage.made[-1].started
