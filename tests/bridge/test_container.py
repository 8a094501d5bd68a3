"""Real processes, queues and threads of a container; only what its handlers do is played."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from typing import Any

import psutil
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from petals.server.handler import TransformerConnectionHandler  # noqa: E402

from swarmlab.bridge.container import BlockContainer  # noqa: E402
from swarmlab.bridge.models.ensure import ensure_model  # noqa: E402
from swarmlab.bridge.serving.shelf import Shelf  # noqa: E402
from tests.bridge.servers import settings_of  # noqa: E402

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> Any:
    return settings_of(ensure_model("tiny_llama", tmp_path_factory.mktemp("models")).path)


@pytest.fixture
def handlers_do(monkeypatch):
    """What each forked handler does."""

    def use(function):
        monkeypatch.setattr(TransformerConnectionHandler, "run", function)

    use(serve)
    return use


usual_handlers = pytest.mark.usefixtures("handlers_do")


def serve(handler):
    handler.ready.set_result(None)
    handler._inner_pipe.recv()


def refuse_to_end(handler):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handler.ready.set_result(None)
    signal.pause()


def hang(_handler):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


def die(_handler):
    os._exit(7)


def processes_of(container):
    return [handler.pid for handler in container.conn_handlers if handler.pid is not None]


def assert_gone(container):
    assert not any(map(psutil.pid_exists, processes_of(container))), "a zombie is a process too"


@usual_handlers
def test_it_starts_and_leaves_nothing_behind_when_it_stops(settings):
    container = BlockContainer(settings)
    container.start_within(DEADLINE_S)
    assert container.is_healthy()
    assert len(processes_of(container)) == 2
    container.stop()
    assert_gone(container)
    assert not container.is_alive()
    assert not any(pool.is_alive() for pool in container.runtime.pools)


def test_a_handler_that_dies_at_once_is_told_and_not_waited_for(settings, handlers_do):
    handlers_do(die)
    container = BlockContainer(settings)
    with pytest.raises(RuntimeError, match="exit status 7"):
        container.start_within(DEADLINE_S)
    container.stop()
    assert_gone(container)


def test_handlers_that_do_not_come_up_are_not_waited_for_for_ever_and_killed(settings, handlers_do):
    handlers_do(hang)
    container = BlockContainer(settings)
    with pytest.raises(TimeoutError, match="within 1 s"):
        container.start_within(1.0)
    container.stop(within_s=0.2)
    assert_gone(container)
    assert len(processes_of(container)) == 1, "the next is not started any more"


def test_a_handler_that_does_not_end_is_killed(settings, handlers_do):
    handlers_do(refuse_to_end)
    container = BlockContainer(settings)
    container.start_within(DEADLINE_S)
    container.stop(within_s=0.2)
    assert_gone(container)


@usual_handlers
def test_a_lock_that_a_dead_process_took_along_stops_nobody_and_keeps_no_block(settings):
    container = BlockContainer(settings)
    container.start_within(DEADLINE_S)
    module = torch.nn.Linear(3, 3)
    kept = weakref.ref(module)
    container.add({3: module})
    del module
    lock = container.front.template.inference_pool.submitted_tasks._wlock
    taker = os.fork()
    if taker == 0:
        lock.acquire()
        os._exit(0)
    os.waitpid(taker, 0)
    container.stop(within_s=0.5)
    assert_gone(container)
    container.forget()
    gc.collect()
    assert kept() is None
    assert container.blocks == frozenset()
    lock.release()  # or a thread of this test run would wait for ever


def test_dropped_blocks_are_free_and_are_said_to_be_away(settings):
    container = BlockContainer(settings)
    modules = {block: torch.nn.Linear(3, 3) for block in (3, 4)}
    kept = weakref.ref(modules[3])
    container.add(modules)
    assert container.modules() == modules
    container.remove([3])
    del modules
    assert kept() is None
    assert container.blocks == {4}
    assert not container.front.presence.is_held(3)
    assert container.front.presence.is_held(4)


@usual_handlers
def test_healing_again_and_again_keeps_no_descriptor_thread_or_process(settings):
    now_s = [0.0]
    shelf = Shelf(lambda: BlockContainer(settings), clock=lambda: now_s[0])
    shelf.start()
    shelf.add({3: torch.nn.Linear(3, 3)})
    me, counts = psutil.Process(), []
    for _ in range(8):
        shelf.container.conn_handlers[0].kill()
        until_s = time.monotonic() + DEADLINE_S
        while shelf.is_healthy and time.monotonic() < until_s:
            time.sleep(0.01)
        now_s[0] += 1000.0
        assert shelf.heal()
        assert shelf.is_healthy
        counts.append((me.num_fds(), threading.active_count(), len(me.children())))
    shelf.shutdown()
    # a thread may just be ending; what stayed each time would be 7 more
    assert all(last <= first + 2 for first, last in zip(counts[0], counts[-1], strict=True)), counts
    assert shelf.blocks == {3}
