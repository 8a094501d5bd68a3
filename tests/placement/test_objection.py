"""A move that was decided is looked at again before anything is dropped."""

from __future__ import annotations

import pytest

from swarmlab.placement.objection import gain, objection
from swarmlab.placement.policy import Server
from swarmlab.types import Intent, ServerRecord, ServerState, Span, SwarmView

OLD, TARGET = Span(0, 2), Span(2, 4)
MINE = Intent(TARGET, 100.0)
ME = Server("me", 2, 10.0, OLD)


def record(peer, start, end, tps=10.0, **more):
    return ServerRecord(peer, Span(start, end), tps, expires_at_s=more.pop("expires_at_s", 200.0), **more)


def view(*others):
    return SwarmView(4, (record("me", 0, 2, intent=MINE), *others), 150.0)


# "twin" holds what I hold, "weak" is all that the other half has
TWIN, WEAK = record("twin", 0, 2), record("weak", 2, 4, 1.0)


def ask(now, then=None, *, leaving=(0, 1), intent=MINE):
    gain_then = gain(then or view(TWIN, WEAK), ME, OLD, TARGET, intent)
    return objection(now, ME, OLD, TARGET, leaving=leaving, intent=intent, gain_then=gain_then)


def test_in_a_swarm_that_has_not_changed_the_move_goes_on():
    assert ask(view(TWIN, WEAK)) is None


@pytest.mark.parametrize(
    "gone",
    [
        (),
        (record("twin", 0, 2, state=ServerState.OFFLINE),),
        (record("twin", 0, 2, state=ServerState.JOINING),),
        (record("twin", 0, 2, intent=Intent(TARGET, 99.0)),),
        (record("twin", 0, 1),),
    ],
)
def test_it_does_not_leave_a_block_that_nobody_else_serves_any_more(gone):
    assert "nobody else serves block" in (ask(view(*gone, WEAK)) or "")


def test_one_block_that_others_serve_may_go_where_the_next_one_must_stay():
    cut = view(record("twin", 0, 1), WEAK)
    assert "nobody else serves" not in (ask(cut, leaving=(0,)) or "")
    assert "nobody else serves block 1" in (ask(cut, leaving=(0, 1)) or "")


def test_of_two_servers_that_would_leave_together_the_one_that_said_so_first_goes():
    later = record("twin", 0, 2, intent=Intent(TARGET, 101.0))
    assert "nobody else" not in (ask(view(later, WEAK)) or "")
    same = record("aaa", 0, 2, intent=Intent(TARGET, 100.0))
    assert "nobody else" in (ask(view(same, WEAK)) or "")


def test_a_swarm_that_has_a_gap_anyway_may_lose_a_block_to_close_it():
    closed_by_me = SwarmView(4, (record("other", 0, 1), record("end", 3, 4)), 150.0)
    me = Server("me", 2, 10.0, Span(0, 2))
    target = Span(1, 3)
    assert objection(closed_by_me, me, OLD, target, leaving=(0,), intent=None, gain_then=1.0) is None
    still_open = SwarmView(4, (record("end", 3, 4),), 150.0)
    assert objection(still_open, me, OLD, target, leaving=(0,), intent=None, gain_then=1.0)


def test_a_gap_that_somebody_has_filled_meanwhile_is_left_to_him():
    filled = view(TWIN, WEAK, record("new", 2, 4, 50.0))
    assert "others have filled the gap" in (ask(filled) or "")


def test_somebody_who_is_loading_or_announced_it_first_counts_as_having_filled_it():
    loading = record("new", 2, 4, 50.0, state=ServerState.JOINING)
    first = record("third", 0, 2, 50.0, intent=Intent(TARGET, 99.0))
    later = record("third", 0, 2, 50.0, intent=Intent(TARGET, 101.0))
    assert ask(view(TWIN, WEAK, loading)) is not None
    assert ask(view(TWIN, WEAK, first)) is not None
    assert ask(view(TWIN, WEAK, later), then=view(TWIN, WEAK, later)) is None


def test_a_part_of_a_plan_that_gains_nothing_by_itself_may_go_on_while_it_loses_no_more():
    rich = view(TWIN, record("strong", 2, 4, 50.0))
    assert gain(rich, ME, OLD, TARGET, MINE) < 0
    assert ask(rich, then=rich) is None
    assert objection(rich, ME, OLD, TARGET, leaving=(0, 1), intent=MINE, gain_then=-0.1) is not None


def test_a_swarm_without_any_throughput_gives_no_number_and_no_objection():
    idle = SwarmView(4, (record("twin", 0, 2, 0.0),), 150.0)
    me = Server("me", 2, 0.0, OLD)
    assert gain(idle, me, OLD, TARGET) == 0.0
    assert objection(idle, me, OLD, TARGET, leaving=(0, 1), intent=None, gain_then=0.0) is None
