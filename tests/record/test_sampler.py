from __future__ import annotations

import threading

from swarmlab.record.sampler import Sampler


def test_it_looks_at_once_and_again_and_stops_with_its_block():
    looked, twice = [], threading.Event()

    def look():
        looked.append(1)
        if len(looked) >= 2:
            twice.set()

    with Sampler(look, 0.01) as sampler:
        assert twice.wait(30)
    count = len(looked)
    assert sampler.looks == count
    assert sampler.failure is None
    assert not sampler._thread.is_alive()


def test_it_ends_between_two_looks_that_are_far_apart():
    with Sampler(lambda: None, 3600.0) as sampler:
        pass
    assert sampler.looks <= 1


def test_what_a_look_raises_ends_it_and_is_kept():
    looked = threading.Event()

    def look():
        looked.set()
        raise OSError("gone")

    with Sampler(look, 0.01) as sampler:
        assert looked.wait(30)
    assert sampler.failure == "OSError: gone"
    assert sampler.looks == 0
