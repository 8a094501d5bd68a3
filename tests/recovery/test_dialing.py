"""How long a connection may take."""

from __future__ import annotations

import math

import pytest

from swarmlab.recovery.dialing import dial_patience_s
from swarmlab.recovery.routing import Hop
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import ServerRecord, Span, SwarmView

SETTINGS = RecoverySettings()
HOP = Hop("a", Span(0, 4))


def view(*others):
    servers = [("a", 0, 4), *others]
    return SwarmView(4, tuple(ServerRecord(peer, Span(start, end), 100.0) for peer, start, end in servers))


@pytest.mark.parametrize("others", [(), (("b", 0, 3),), (("b", 0, 2), ("c", 3, 4))])
def test_the_only_one_is_waited_for(others):
    assert dial_patience_s(HOP, view(*others), (), SETTINGS, rtt_s=0.001) == SETTINGS.connect_s


@pytest.mark.parametrize("others", [(("b", 0, 4),), (("b", 0, 2), ("c", 2, 4))])
def test_where_others_serve_the_same_blocks_it_is_left_for_them_soon(others):
    assert dial_patience_s(HOP, view(*others), (), SETTINGS, rtt_s=0.001) == SETTINGS.hedge_s
    assert dial_patience_s(HOP, view(*others), {"b"}, SETTINGS, rtt_s=0.001) == SETTINGS.connect_s


def test_a_far_server_has_time_for_its_round_trips_and_twice_as_much_after_each_failure():
    waits = [dial_patience_s(HOP, view(("b", 0, 4)), (), SETTINGS, rtt_s=0.1, n_failed=n) for n in range(5)]
    assert waits == pytest.approx([1.0, 2.0, 4.0, 8.0, SETTINGS.connect_s])
    assert dial_patience_s(HOP, view(("b", 0, 4)), (), SETTINGS, n_failed=10**6) == SETTINGS.connect_s


def test_one_that_answered_no_ping_is_taken_for_gone_rather_than_far():
    assert dial_patience_s(HOP, view(("b", 0, 4)), (), SETTINGS, rtt_s=math.inf) == SETTINGS.hedge_s
