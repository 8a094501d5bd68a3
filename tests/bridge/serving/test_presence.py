"""The table that a server and its handlers share."""

from __future__ import annotations

from swarmlab.bridge.serving.presence import Presence


def test_presence_says_what_is_held_and_how_many_sessions_use_it():
    presence = Presence(8)
    assert not presence.is_held(3)
    presence.set_held(3, held=True)
    assert presence.is_held(3)
    assert not presence.is_held(-5)
    assert not presence.is_held(8)
    presence.count_session([2, 3], 1)
    presence.count_session([3, 4], 1)
    assert [presence.sessions_on([block]) for block in (1, 2, 3, 4)] == [0, 1, 2, 1]
    assert presence.sessions_on(range(8)) == 2
    presence.count_session([3, 4], -1)
    assert presence.sessions_on([3, 4]) == 1
    assert presence.sessions_on([]) == 0
