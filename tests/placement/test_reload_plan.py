"""Plans of moves: whatever happens half-way, what is announced is held, and nothing is loaded that was there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.reload_plan import (
    Announce,
    Check,
    Drain,
    Drop,
    Load,
    Mode,
    contiguous,
    memory_plan,
    plan_mend,
    plan_move,
)
from swarmlab.sim.reload import steps
from swarmlab.types import Span


class World:
    """What a server holds and says while it follows a plan; holds the rules that every plan must keep."""

    def __init__(self, held):
        self.held = set(held)
        self.online = contiguous(held)
        self.loads, self.most, self.checked = [], len(self.held), ()

    def follow(self, plan):
        for action in plan:
            getattr(self, f"_{type(action).__name__.lower()}")(action)
            assert self.online is None or set(self.online) <= self.held, (
                "it says that it serves what it does not hold"
            )
            self.most = max(self.most, len(self.held))
        return self

    def _announce(self, action):
        self.online = action.online

    def _load(self, action):
        assert action.block not in self.held, "what is held is not loaded again"
        self.held.add(action.block)
        self.loads.append(action.block)

    def _check(self, action):
        self.checked = action.leaving

    def _drain(self, action):
        assert not self.online or not set(action.blocks) & set(self.online), (
            "who drains must not take new clients"
        )
        self.drained = action.blocks

    def _drop(self, action):
        assert set(action.blocks) <= self.held
        assert self.drained == action.blocks, "sessions get their time"
        self.held -= set(action.blocks)


widths = st.integers(1, 6)


@st.composite
def moves(draw):
    width = draw(widths)
    return Span(start := draw(st.integers(0, 10)), start + width), Span(
        end := draw(st.integers(0, 10)), end + width
    )


@given(moves(), st.sampled_from(Mode))
def test_a_plan_ends_with_the_new_span_held_and_announced_and_loads_only_what_is_new(move, mode):
    old, new = move
    world = World(old).follow(plan_move(old, new, mode))
    assert world.held == set(new)
    assert world.online == new
    assert sorted(world.loads) == [block for block in new if block not in old]


@given(moves(), st.sampled_from(Mode))
def test_it_looks_again_right_before_each_drop_at_the_blocks_that_it_drops(move, mode):
    old, new = move
    plan = plan_move(old, new, mode)
    for place, action in enumerate(plan):
        if isinstance(action, Drop):
            assert plan[place - 1] == Check(action.blocks)
            assert any(isinstance(earlier, Announce) and earlier.wants for earlier in plan[:place])


@given(moves())
def test_prefetching_never_serves_less_and_in_place_never_holds_more(move):
    old, new = move
    online = [action.online for action in plan_move(old, new, Mode.PREFETCH) if isinstance(action, Announce)]
    assert all(span in (old, new) for span in online)
    assert World(old).follow(plan_move(old, new, Mode.IN_PLACE)).most == old.length


@given(moves())
def test_in_place_serves_what_the_simulator_says_while_it_loads(move):
    old, new = move
    if old == new:
        return
    simulated = steps(old, new, LoadCost(s_per_block=1.0, keeps_overlap=True))
    served, online = [], old
    for action in plan_move(old, new, Mode.IN_PLACE):
        if isinstance(action, Announce):
            online = action.online
        elif isinstance(action, Load):
            served.append(((action.block,), online))
    assert served == [(step.blocks, step.serving) for step in simulated]


@given(moves(), st.sampled_from(Mode), st.data())
def test_from_anywhere_in_a_move_there_is_a_way_back_that_loads_only_what_was_dropped(move, mode, data):
    old, new = move
    plan = plan_move(old, new, mode)
    world = World(old).follow(plan[: data.draw(st.integers(0, len(plan)))])
    missing, held = set(old) - world.held, set(world.held)
    before = len(world.loads)
    world.follow(plan_mend(held, old))
    assert world.held == set(old)
    assert world.online == old
    assert set(world.loads[before:]) == missing


@given(moves())
def test_no_plan_for_a_span_that_stays(move):
    old, _ = move
    assert plan_move(old, old, Mode.PREFETCH) == []


def test_a_move_of_two_blocks_reads_like_the_documentation():
    assert plan_move(Span(0, 4), Span(2, 6), Mode.PREFETCH) == [
        Announce(Span(0, 4), Span(2, 6)), Load(4), Load(5), Check((0, 1)), Announce(Span(2, 6)),
        Drain((0, 1)), Check((0, 1)), Drop((0, 1)),
    ]  # fmt: skip


def test_a_move_that_nobody_knew_of_looks_again_after_its_first_block():
    quick = plan_move(Span(0, 4), Span(2, 6), Mode.PREFETCH, announced=False)
    usual = plan_move(Span(0, 4), Span(2, 6), Mode.PREFETCH)
    assert quick == [*usual[:2], Check((0, 1)), *usual[2:]]
    assert plan_move(Span(0, 4), Span(1, 5), Mode.PREFETCH, announced=False) == plan_move(
        Span(0, 4), Span(1, 5), Mode.PREFETCH
    )


def test_a_server_cannot_become_wider():
    with pytest.raises(ValueError, match="another width"):
        plan_move(Span(0, 4), Span(2, 7), Mode.PREFETCH)


def test_blocks_with_a_hole_are_no_span():
    assert contiguous([]) is None
    assert contiguous({3, 2}) == Span(2, 4)
    with pytest.raises(ValueError, match="one piece"):
        contiguous({1, 3})


def test_memory_decides_which_way_and_the_numbers_are_told():
    ask = {"n_new": 3, "block_bytes": 100, "raw_block_bytes": 50}
    fits, full = (memory_plan("auto", free_bytes=free, **ask) for free in (350, 349))
    assert (fits.mode, fits.needed_bytes, fits.free_bytes) == (Mode.PREFETCH, 350, 350)
    assert full.mode is Mode.IN_PLACE
    assert "do not fit" in full.reason
    assert memory_plan("prefetch", free_bytes=0, **ask).mode is Mode.PREFETCH
    assert memory_plan("in_place", free_bytes=10**9, **ask).mode is Mode.IN_PLACE
    with pytest.raises(BadInput, match="reload"):
        memory_plan("fast", free_bytes=0, **ask)


def test_the_drain_is_told_of_the_blocks_that_go():
    drains = [
        action.blocks
        for action in plan_move(Span(3, 6), Span(1, 4), Mode.IN_PLACE)
        if isinstance(action, Drain)
    ]
    assert drains == [(5,), (4,)]
