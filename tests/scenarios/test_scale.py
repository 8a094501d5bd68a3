"""Measurements in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import time

import pytest

from swarmlab.scenarios.scale import in_fresh_process


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_process_of_a_measurement_ends_with_the_run():
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            in_fresh_process(time.sleep, 3600)  # pyright: ignore[reportArgumentType]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not multiprocessing.active_children()


def test_what_is_measured_comes_back():
    assert in_fresh_process(dict, [("a", 1)]) == {"a": 1}
