"""The emulated link: a pure model of when messages arrive, and messages that are in fact held back, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.bridge import link as link_module
from swarmlab.bridge.link import Carried, Link, Pace, passage
from tests.bridge.virtual_time import VirtualLoop, clock_of_the_loop

SLOW = Pace.of(0.08, 0.5)  # 10,000 bytes/s


def message(n_bytes, text=""):
    return SimpleNamespace(ByteSize=lambda: n_bytes, text=text)


def in_virtual_time(main):
    loop = VirtualLoop()
    try:
        with clock_of_the_loop(link_module):
            return loop.run_until_complete(main())
    finally:
        loop.close()


def test_rates_are_in_bits():
    assert Pace.of(100, 0.0).rate_bytes_per_s == 12_500_000
    assert Pace.of(None, 0.1).rate_bytes_per_s is None


def test_an_idle_link_takes_the_time_of_the_bytes_and_the_delay():
    assert passage(SLOW, 0.0, 100.0, 5000) == (100.5, 101.0)


def test_a_busy_link_makes_the_next_wait_but_not_for_the_delay():
    free_at_s, first = passage(SLOW, 0.0, 100.0, 10_000)
    _, second = passage(SLOW, free_at_s, 100.0, 10_000)
    assert (first, second) == (101.5, 102.5)


def test_an_unlimited_link_only_delays():
    assert passage(Pace(None, 0.05), 7.0, 9.0, 10**9) == (9.0, 9.05)


@given(
    sent=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**6)), min_size=1, max_size=30),
    rate=st.floats(1e3, 1e8),
    delay_s=st.floats(0, 1),
)
def test_nothing_overtakes_and_the_rate_is_never_exceeded(sent, rate, delay_s):
    pace, free_at_s, arrivals, now_s = Pace(rate, delay_s), 0.0, [], 0.0
    for gap_s, n_bytes in sent:
        now_s += gap_s
        free_at_s, arrives_at_s = passage(pace, free_at_s, now_s, n_bytes)
        arrivals.append((now_s, n_bytes, arrives_at_s))
    assert [at_s for _, _, at_s in arrivals] == sorted(at_s for _, _, at_s in arrivals)
    for first in range(len(arrivals)):
        total = 0
        for now_s, n_bytes, at_s in arrivals[first:]:
            total += n_bytes
            needed_s = total / rate + delay_s
            assert at_s - arrivals[first][0] >= needed_s * (1 - 1e-9) - 1e-9
            assert at_s >= now_s + delay_s


def test_messages_of_one_stream_do_not_wait_for_each_others_delay():
    async def main():
        now_s = asyncio.get_running_loop().time

        async def source():
            for text in "abc":
                yield message(1000, text)

        start_s, carried = now_s(), Carried(Link(SLOW), source())
        return [(one.text, round(now_s() - start_s, 6)) async for one in carried]

    assert in_virtual_time(main) == [("a", 0.6), ("b", 0.7), ("c", 0.8)]


def test_two_streams_share_the_link():
    async def main():
        loop, link = asyncio.get_running_loop(), Link(SLOW)
        start_s = loop.time()

        async def send():
            await link.carry(10_000)
            return round(loop.time() - start_s, 6)

        return sorted(await asyncio.gather(send(), send()))

    assert in_virtual_time(main) == [1.5, 2.5]


def test_what_the_source_raises_comes_after_what_it_sent():
    async def main():
        async def source():
            yield message(10, "a")
            raise KeyError("lost")

        carried = Carried(Link(SLOW), source())
        seen = await anext(carried)
        for _ in range(2):  # whoever asks again must not wait for ever
            with pytest.raises(KeyError, match="lost"):
                await anext(carried)
        await carried.aclose()
        return seen.text

    assert in_virtual_time(main) == "a"


def test_closing_it_closes_the_source():
    async def main():
        closed = []

        async def source():
            try:
                while True:
                    yield message(10)
                    await asyncio.sleep(1)
            finally:
                closed.append(True)

        carried = Carried(Link(SLOW), source())
        await anext(carried)
        await carried.aclose()
        return closed

    assert in_virtual_time(main) == [True]
