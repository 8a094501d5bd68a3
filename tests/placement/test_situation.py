"""What counts as going to be there, as serving now, and as staying."""

from __future__ import annotations

import numpy as np
import pytest

from swarmlab.placement.everybody import MAX_OVER_MEDIAN
from swarmlab.placement.grace import remember
from swarmlab.placement.situation import Situation, blocks_left, situation
from swarmlab.types import Intent, ServerRecord, ServerState, Span, SwarmView


def seen(
    *records: ServerRecord, intent: Intent | None = None, at_s: float = 0.0, n_blocks: int = 4
) -> Situation:
    return situation(SwarmView(n_blocks, records, seen_at_s=at_s), "me", None, intent)


def test_the_server_that_looks_is_left_out():
    me, other = ServerRecord("me", Span(0, 3), 0.1), ServerRecord("other", Span(2, 4), 0.3)
    found = seen(me, other)
    assert found.committed_tps.tolist() == [0, 0, pytest.approx(0.3), pytest.approx(0.3)]
    assert found.committed.tolist() == found.staying.tolist() == [0, 0, 1, 1]
    assert found.serving_tps[:2].tolist() == [0, 0]


def test_a_loading_server_counts_as_coming_and_an_offline_one_not_at_all():
    found = seen(
        ServerRecord("a", Span(0, 2), 1.0, ServerState.JOINING),
        ServerRecord("b", Span(1, 4), 2.0, ServerState.OFFLINE),
    )
    assert found.committed_tps.tolist() == [1, 1, 0, 0]
    assert found.serving_tps.tolist() == [0, 0, 0, 0]
    assert found.staying.tolist() == [0, 0, 0, 0]


def test_an_announced_move_counts_as_made_but_serves_until_then():
    found = seen(ServerRecord("a", Span(0, 2), 1.0, intent=Intent(Span(1, 3), 5.0)))
    assert found.committed_tps.tolist() == [0, 1, 1, 0]
    assert found.serving_tps.tolist() == [1, 1, 0, 0]
    assert found.staying.tolist() == [0, 1, 0, 0]  # block 1 it keeps, block 2 it does not serve yet


@pytest.mark.parametrize(
    ("announced_at_s", "peer", "counts"),
    [(4.0, "z", True), (5.0, "a", True), (5.0, "z", False), (6.0, "a", False)],
)
def test_of_two_announced_moves_the_earlier_counts(announced_at_s: float, peer: str, counts: bool):
    rival = ServerRecord(peer, Span(0, 2), 1.0, intent=Intent(Span(2, 4), announced_at_s))
    found = seen(rival, intent=Intent(Span(2, 4), 5.0))
    assert found.committed_tps.tolist() == ([0, 0, 1, 1] if counts else [1, 1, 0, 0])
    assert found.movable.tolist() == [not counts]


def test_a_vanished_server_is_still_coming_but_not_surely_serving():
    a, b = ServerRecord("a", Span(0, 4), 1.0), ServerRecord("b", Span(2, 4), 1.0)
    memory = remember(SwarmView(4, (a, b)), None, grace_s=90, own_peer="me")
    later = SwarmView(4, (a,), seen_at_s=60)
    found = situation(later, "me", remember(later, memory, grace_s=90, own_peer="me"), None)
    assert found.committed_tps.tolist() == [1, 1, 2, 2]
    assert found.serving_tps.tolist() == [1, 1, 1, 1]


def test_a_cut_span_counts_once():
    a, cut = ServerRecord("a", Span(0, 4), 1.0), ServerRecord("a", Span(1, 4), 1.0)
    memory = remember(SwarmView(4, (a,)), None, grace_s=90, own_peer="me")
    later = SwarmView(4, (cut,), seen_at_s=60)
    found = situation(later, "me", remember(later, memory, grace_s=90, own_peer="me"), None)
    assert found.committed_tps.tolist() == [1, 1, 1, 1]
    assert found.committed.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("own", [None, 4.0, 6.0])
def test_a_cut_span_of_a_server_that_is_going_elsewhere_counts_once(own: float | None):
    a, going = ServerRecord("a", Span(0, 4), 1.0), Intent(Span(3, 7), 5.0)
    memory = remember(SwarmView(8, (a,)), None, grace_s=90, own_peer="me")
    later = SwarmView(8, (ServerRecord("a", Span(1, 4), 1.0, intent=going),), seen_at_s=60)
    known = remember(later, memory, grace_s=90, own_peer="me")
    found = situation(later, "me", known, None if own is None else Intent(Span(0, 4), own))
    here, there = [1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 0]
    # an intent announced before one's own counts as made, a later one does not yet
    assert found.committed_tps.tolist() == found.committed.tolist() == (here if own == 4.0 else there)
    assert found.gathered.tolist() == there
    assert found.serving_tps.tolist() == [0, 1, 1, 1, 0, 0, 0, 0]
    assert found.movable.tolist() == [own == 4.0]


def test_records_that_were_not_renewed_are_not_relied_on():
    fresh = ServerRecord("a", Span(0, 2), 1.0, expires_at_s=220.0)
    due = ServerRecord("b", Span(1, 3), 1.0, expires_at_s=161.0)  # half of its 120 s are over
    late = ServerRecord("c", Span(2, 4), 1.0, expires_at_s=120.0)
    found = seen(fresh, due, late, at_s=100.0)
    assert found.committed.tolist() == [1, 2, 2, 1]
    assert found.staying.tolist() == [1, 2, 1, 0]


def test_no_throughput_counts_for_more_than_a_multiple_of_the_median():
    small = [ServerRecord(f"s{i}", Span(0, 2), 1.0) for i in range(3)]
    found = seen(*small, ServerRecord("huge", Span(2, 4), 1e9))
    assert found.committed_tps.tolist() == [3, 3, MAX_OVER_MEDIAN, MAX_OVER_MEDIAN]


def test_what_subtraction_leaves_of_an_empty_block_is_zero():
    rng = np.random.default_rng(0)
    for _ in range(200):
        me = ServerRecord("me", Span(0, 4), float(rng.random()))
        others = [ServerRecord(f"p{i}", Span(1, 3), float(rng.random())) for i in range(3)]
        found = seen(me, *others)
        assert found.committed_tps[[0, 3]].tolist() == [0.0, 0.0]
        assert (found.serving_tps >= 0).all()


def test_blocks_left_are_those_of_the_old_span_only():
    spans = [Span(a, b) for a in range(6) for b in range(a + 1, 7)]
    for old in spans:
        for new in spans:
            left = [block for part in blocks_left(old, new) for block in range(part.start, part.stop)]
            assert left == [block for block in old if block not in new]
