"""What one session keeps to itself and what the others of its client hear."""

from __future__ import annotations

import pytest

from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.blame import Blame
from swarmlab.recovery.failure import Attempt, Cause
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import ServerRecord, Span, SwarmView

SETTINGS = RecoverySettings()
VIEW = SwarmView(1, (ServerRecord("a", Span(0, 1), 1.0, expires_at_s=10.0),))


@pytest.fixture
def sessions():
    shared = BanTable(SETTINGS)
    return Blame(SETTINGS, shared), Blame(SETTINGS, shared)


def attempt(cause: Cause, began_s: float = 0.0) -> Attempt:
    return Attempt("a", "0:1", cause, "", began_s)


OF_ONE_SESSION = {Cause.RESET, Cause.BUSY, Cause.UNABLE, Cause.RENEWED, Cause.REFUSED}


@pytest.mark.parametrize("cause", Cause)
def test_others_hear_of_what_concerns_them(sessions, cause):
    one, other = sessions
    one.failed(attempt(cause), 100.0, VIEW)
    assert one.excluded(100.0, VIEW) == (set() if cause is Cause.RENEWED else {"a"})
    assert other.excluded(100.0, VIEW) == (set() if cause in OF_ONE_SESSION else {"a"})


def test_what_others_told_is_over_when_the_server_has_served_anybody_since(sessions):
    one, other = sessions
    one.failed(attempt(Cause.BROKEN), 100.0, VIEW)
    other.praise("a", 99.0)
    assert other.excluded(101.0, VIEW) == {"a"}
    other.praise("a", 100.5)
    assert other.excluded(101.0, VIEW) == set()
    assert one.excluded(101.0, VIEW) == {"a"}, "it forgot what it had seen itself"
    one.praise("a", 101.0)
    assert one.excluded(101.0, VIEW) == set()


def test_where_nobody_else_serves_what_others_told_is_no_reason_to_wait(sessions):
    one, other = sessions
    one.failed(attempt(Cause.BROKEN), 100.0, VIEW)
    assert other.excluded(100.0, VIEW, last_resort=True) == set()
    assert one.excluded(100.0, VIEW, last_resort=True) == {"a"}


def test_suspects_are_those_of_both(sessions):
    one, other = sessions
    one.failed(attempt(Cause.HUNG), 100.0, VIEW)
    assert one.suspects() == other.suspects() == {"a"}


def test_a_failure_told_twice_counts_once(sessions):
    one, _ = sessions
    told = attempt(Cause.REFUSED, began_s=float("inf"))
    for _ in range(5):
        one.failed(told, 100.0, VIEW)
    assert one.excluded(100.0 + SETTINGS.ban_s, VIEW, last_resort=True) == set()


def test_what_can_never_serve_one_session_may_serve_another(sessions):
    one, other = sessions
    one.failed(attempt(Cause.UNABLE), 100.0, VIEW)
    assert one.forbids_all(["a"])
    assert not other.forbids_all(["a"])


def test_a_pardon_ends_what_the_session_held_against_a_peer(sessions):
    one, _ = sessions
    one.failed(attempt(Cause.REFUSED), 100.0, VIEW)
    one.pardon(["a"])
    assert one.excluded(100.0, VIEW) == set()
