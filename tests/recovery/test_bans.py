"""Whom to avoid until when, on an explicit clock."""

from __future__ import annotations

import math
from threading import Barrier, Thread

import pytest

from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import ServerRecord, Span, SwarmView

SETTINGS = RecoverySettings(ban_s=5.0, ban_max_s=60.0, busy_s=2.0)
NEVER = 1e12


def view(**expires_at_s: float) -> SwarmView:
    servers = [ServerRecord(peer, Span(0, 1), 1.0, expires_at_s=at) for peer, at in expires_at_s.items()]
    return SwarmView(1, tuple(servers))


@pytest.fixture
def bans():
    return BanTable(SETTINGS)


def test_nobody_is_avoided_at_first(bans):
    assert bans.excluded(0.0, view(a=10)) == frozenset()


def test_after_its_time_a_failed_peer_is_a_last_resort_only(bans):
    bans.failed("a", 100.0, view(a=10))
    assert bans.excluded(104.9, view(a=10), last_resort=True) == {"a"}
    assert bans.excluded(105.0, view(a=10), last_resort=True) == frozenset()
    assert bans.excluded(NEVER, view(a=10)) == {"a"}


def test_a_first_failure_is_forgiven_when_the_peer_announces_itself_again(bans):
    bans.failed("a", 100.0, view(a=10))
    assert bans.excluded(100.1, view(a=9)) == {"a"}  # an older record is no news
    assert bans.excluded(100.1, view()) == {"a"}  # nor is its absence
    assert bans.excluded(100.1, view(a=11)) == frozenset()


def test_a_peer_that_goes_on_failing_sits_out_bans_that_double(bans):
    now_s = 0.0
    for length_s in (5.0, 10.0, 20.0, 40.0, 60.0, 60.0):
        bans.failed("a", now_s, view(a=10))
        assert bans.excluded(now_s + length_s - 0.1, view(a=10), last_resort=True) == {"a"}
        assert bans.excluded(now_s + length_s, view(a=10), last_resort=True) == frozenset()
        now_s += length_s
    assert bans.excluded(now_s - 1, view(a=99)) == {"a"}  # announcing itself is not enough any more ...
    assert (
        bans.excluded(now_s - 1, view(a=99), last_resort=True) == frozenset()
    )  # ... unless nobody else is there


def test_thousands_of_failures_are_still_a_bounded_ban(bans):
    for _ in range(2000):
        bans.failed("a", 0.0, None)
    assert bans.excluded(SETTINGS.ban_max_s, view(a=10), last_resort=True) == frozenset()


def test_a_peer_that_only_forgot_the_session_is_used_at_once_where_nobody_else_is(bans):
    bans.reset("a", 100.0, view(a=10))
    assert bans.excluded(100.0, view(a=10)) == {"a"}  # others first
    assert bans.excluded(100.0, view(a=10), last_resort=True) == frozenset()
    assert bans.suspects() == {"a"}


def test_a_peer_that_goes_on_forgetting_is_asked_less_and_less_often(bans):
    now_s = 100.0
    bans.reset("a", now_s, view(a=10))
    for wait_s in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        bans.reset("a", now_s, view(a=10))
        assert bans.excluded(now_s + 0.9 * wait_s, view(a=10), last_resort=True) == {"a"}
        now_s += wait_s
        assert bans.excluded(now_s, view(a=10), last_resort=True) == frozenset()
    bans.succeeded("a")
    bans.reset("a", now_s, view(a=10))
    assert bans.excluded(now_s, view(a=10), last_resort=True) == frozenset()


def test_success_ends_the_series(bans):
    for _ in range(4):
        bans.failed("a", 0.0, view(a=10))
    bans.succeeded("a")
    assert bans.excluded(0.0, view(a=10)) == frozenset()
    bans.failed("a", 0.0, view(a=10))
    assert bans.excluded(5.0, view(a=10), last_resort=True) == frozenset()


def test_suspects_are_those_that_failed_and_have_not_succeeded_since(bans):
    bans.failed("a", 0.0, view(a=10))
    bans.failed("b", 0.0, view(b=10))
    bans.succeeded("b")
    bans.busy("c", 0.0, SETTINGS.busy_s)
    assert bans.suspects() == {"a"}


def test_a_busy_peer_is_asked_again_soon(bans):
    bans.busy("a", 100.0, SETTINGS.busy_s)
    assert bans.excluded(101.9, view(a=10), last_resort=True) == {"a"}
    assert bans.excluded(102.0, view(a=10)) == frozenset()


def test_a_peer_with_other_blocks_waits_for_its_newer_record(bans):
    bans.stale("a", 0.0, view(a=10))
    assert bans.excluded(59.0, view(a=10), last_resort=True) == {"a"}
    assert bans.excluded(1.0, view(a=11)) == frozenset()


def test_a_forbidden_peer_stays_so(bans):
    bans.forbid("a")
    assert bans.excluded(NEVER, view(a=NEVER), last_resort=True) == {"a"}


def test_forbids_all_only_if_nobody_can_ever_help(bans):
    assert not bans.forbids_all([])
    bans.forbid("a")
    assert bans.forbids_all(["a"])
    assert not bans.forbids_all(["a", "b"])
    bans.busy("b", 0.0, SETTINGS.busy_s)
    assert not bans.forbids_all(["a", "b"])


def test_what_was_begun_before_a_failure_says_nothing_new_about_it(bans):
    bans.failed("a", 100.0, view(a=10), began_s=50.0)
    bans.failed(
        "a", 100.2, view(a=10), began_s=60.0
    )  # the stream of another session, broken by the same death
    bans.succeeded("a", asked_at_s=99.9)  # a reply that was on its way
    assert bans.excluded(104.9, view(a=10), last_resort=True) == {"a"}
    assert bans.excluded(104.9, view(a=11)) == frozenset()  # a first failure still
    bans.failed("a", 106.0, view(a=10), began_s=105.0)
    assert bans.excluded(115.9, view(a=10), last_resort=True) == {"a"}
    bans.succeeded("a", asked_at_s=106.5)
    assert bans.excluded(107.0, view(a=10)) == frozenset()


def test_no_failure_told_on_another_thread_is_lost(bans):
    n_threads, n_failures = 8, 300
    start = Barrier(n_threads)

    def tell() -> None:
        start.wait()
        for _ in range(n_failures):
            bans.failed("a", 0.0, None)
            bans.excluded(0.0, view(a=10))

    threads = [Thread(target=tell) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bans._bans["a"].streak == n_threads * n_failures


def test_the_next_chance_is_the_first_end_of_a_ban(bans):
    assert bans.next_chance_s(["a"], 0.0) == math.inf
    bans.failed("a", 100.0, None)
    bans.busy("b", 100.0, 2.0)
    bans.forbid("c")
    assert bans.next_chance_s(["a", "b", "c"], 100.0) == 102.0
    assert bans.next_chance_s(["a", "b", "c"], 102.0) == 105.0
    assert bans.next_chance_s(["a", "b", "c"], 105.0) == math.inf
    assert bans.next_chance_s(["x"], 100.0) == math.inf
