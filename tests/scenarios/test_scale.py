"""Measurements in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import time

import pytest

from swarmlab.scenarios.scale import Scale, in_fresh_process
from swarmlab.sim.settings import SimSettings


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


@pytest.mark.parametrize(("sizes", "said"), [([100], True), ([100, 300], False)])
def test_of_one_size_it_is_said_before_the_start_what_will_be_missing(sizes, said):
    scale = Scale(SimSettings(), sizes, ["swarmlab"], seed=0)
    assert ("the verdict will be unknown" in scale.describe()) is said


def test_what_is_measured_comes_back():
    assert in_fresh_process(dict, [("a", 1)]) == {"a": 1}
