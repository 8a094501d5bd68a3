"""What the arms that are not petals itself decide, and what all arms have in common."""

from __future__ import annotations

import numpy as np
import pytest

from swarmlab.errors import BadInput
from swarmlab.placement.appendix_d import AppendixD
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.none import NoBalancing
from swarmlab.placement.petals import Petals
from swarmlab.placement.pinned import Pinned
from swarmlab.placement.policy import Policy, Server
from swarmlab.placement.recheck import Recheck
from swarmlab.placement.registry import POLICIES
from swarmlab.types import ServerRecord, Span, SwarmView
from tests.placement.views import random_view

# everybody on the left: petals' A decides to move to 2
GAP = SwarmView(4, (ServerRecord("a", Span(0, 2), 1.0), ServerRecord("b", Span(0, 2), 1.0)))
FILLED = SwarmView(4, (*GAP.servers, ServerRecord("d", Span(2, 4), 2.0)))
A = Server("a", 2, 1.0, Span(0, 2))


def arms() -> list[Policy]:
    return [Pinned(Span(0, 1)) if name == "pinned" else build() for name, build in POLICIES.items()]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_every_arm_carries_its_name():
    assert [arm.name for arm in arms()] == list(POLICIES)


@pytest.mark.parametrize("arm", arms(), ids=lambda arm: arm.name)
def test_no_random_view_crashes_a_decision_and_every_target_fits(arm: Policy):
    draw = rng(1)
    for _ in range(150):
        view = random_view(draw, max_blocks=14, max_servers=14)
        record = view.servers[draw.integers(len(view.servers))]
        known = draw.random() < 0.7  # sometimes the view does not show the server, or shows it elsewhere
        server = Server(
            record.peer_id if known else "unheard of",
            record.span.length,
            float(draw.choice([0.0, record.throughput_tps])),
            Span(0, record.span.length) if draw.random() < 0.3 else record.span,
        )
        chosen = arm.choose(view, server, draw)
        assert chosen.moved
        assert chosen.old is None
        assert chosen.target.end <= view.n_blocks
        decision = arm.reconsider(view, server, None, draw)
        assert decision.target.end <= view.n_blocks
        assert decision.policy == arm.name
        if not decision.moved:
            assert decision.target == decision.old == server.span


@pytest.mark.parametrize("arm", arms(), ids=lambda arm: arm.name)
def test_a_server_without_a_span_cannot_reconsider(arm: Policy):
    with pytest.raises(BadInput, match=r"server\.span"):
        arm.reconsider(FILLED, Server("new", 2, 1.0), None, rng())


def test_recheck_moves_at_the_third_yes_in_a_row():
    arm, memory, waits = Recheck(), None, []
    for look in range(3):
        decision = arm.reconsider(GAP, A, memory, rng(look))
        memory = decision.memory
        waits.append(decision.check_again_s)
    assert decision.moved
    assert decision.target == Span(2, 4)
    assert not decision.keeps_target
    assert waits[2] is None
    assert all(wait in range(60, 101) for wait in waits[:2])


def test_recheck_starts_over_after_a_no():
    arm = Recheck()
    first = arm.reconsider(GAP, A, None, rng())
    assert first.memory.confirmations == 1
    second = arm.reconsider(FILLED, A, first.memory, rng())
    assert second.memory.confirmations == 0
    assert second.check_again_s is None
    assert arm.reconsider(GAP, A, second.memory, rng()).memory.confirmations == 1


def test_recheck_waits_as_long_as_its_pull_request_draws():
    waits = {Recheck().reconsider(GAP, A, None, rng(seed)).check_again_s for seed in range(600)}
    assert waits == set(range(60, 101))


def test_pinned_serves_what_it_was_given():
    arm = Pinned(Span(1, 3))
    assert arm.choose(GAP, Server("new", 2, 1.0), rng()).target == Span(1, 3)
    assert not arm.reconsider(GAP, A, None, rng()).moved
    with pytest.raises(BadInput, match=r"pinned\.span"):
        Pinned(Span(3, 5)).choose(GAP, Server("new", 2, 1.0), rng())


def test_none_joins_anywhere_and_stays():
    starts = [NoBalancing().choose(GAP, Server("new", 2, 1.0), rng(seed)).target.start for seed in range(300)]
    assert set(starts) == {0, 1, 2}
    assert min(starts.count(start) for start in (0, 1, 2)) > 60
    assert not NoBalancing().reconsider(GAP, A, None, rng()).moved


def test_join_only_joins_where_it_is_needed_and_stays():
    decision = JoinOnly().choose(GAP, Server("new", 2, 1.0), rng())
    assert (decision.target, decision.expected_stay_tps, decision.predicted_tps) == (Span(2, 4), 0.0, 1.0)
    assert not JoinOnly().reconsider(GAP, A, None, rng()).moved


def test_a_returning_server_does_not_count_its_own_old_records():
    view = SwarmView(4, (ServerRecord("a", Span(2, 4), 5.0), ServerRecord("b", Span(0, 2), 1.0)))
    for arm in (JoinOnly(), AppendixD()):
        assert arm.choose(view, Server("a", 2, 5.0), rng()).target == Span(2, 4)
    assert Petals().choose(view, Server("a", 2, 5.0), rng()).target == Span(0, 2)  # the original counts them


def test_appendix_d_keeps_its_target_and_knows_no_guard():
    lonely = SwarmView(4, (ServerRecord("a", Span(0, 2), 4.0), ServerRecord("b", Span(0, 4), 1.0)))
    decision = AppendixD().reconsider(GAP, A, None, np.random.RandomState(0))
    assert decision.moved
    assert decision.keeps_target
    assert decision.target == Span(2, 4)
    assert not AppendixD().reconsider(lonely, Server("a", 2, 4.0, Span(0, 2)), None, rng()).moved


@pytest.mark.parametrize(("p", "moves"), [(0.49, True), (0.51, False)])
def test_appendix_d_moves_for_a_gain_of_p(p: float, moves: bool):
    # 100 now; with one of a, b on the right 150
    view = SwarmView(
        4,
        (
            ServerRecord("a", Span(0, 2), 50.0),
            ServerRecord("b", Span(0, 2), 150.0),
            ServerRecord("c", Span(2, 4), 100.0),
        ),
    )
    decision = AppendixD(p=p).reconsider(
        view, Server("a", 2, 50.0, Span(0, 2)), None, np.random.RandomState(0)
    )
    assert decision.moved == moves
    if moves:
        assert decision.predicted_tps == pytest.approx(150.0)


def test_appendix_d_refuses_a_negative_threshold():
    with pytest.raises(BadInput, match=r"appendix_d\.p"):
        AppendixD(p=-0.1)


def test_loading_costs_what_is_new_or_everything():
    partial, full = LoadCost(s_per_block=2.0, s_per_move=5.0), LoadCost(s_per_block=2.0, keeps_overlap=False)
    old = Span(2, 6)
    assert (partial.blocks_loaded(old, Span(3, 7)), full.blocks_loaded(old, Span(3, 7))) == (1, 4)
    assert (partial.reload_s(old, Span(3, 7)), full.reload_s(old, Span(3, 7))) == (7.0, 8.0)
    assert partial.blocks_loaded(old, Span(8, 12)) == 4
    assert partial.blocks_loaded(None, Span(3, 7)) == 4
    assert (partial.blocks_loaded(old, old), full.blocks_loaded(old, old)) == (0, 0)
    assert (partial.reload_s(old, old), full.reload_s(old, old)) == (0.0, 0.0)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_loading_times_are_refused(value: float):
    with pytest.raises(BadInput, match=r"load\.s_per_block"):
        LoadCost(s_per_block=value)


@pytest.mark.parametrize(("n_blocks", "tps"), [(0, 1.0), (2, -1.0), (2, float("nan")), (2, 1e300)])
def test_impossible_servers_are_refused(n_blocks: int, tps: float):
    with pytest.raises(BadInput, match=r"server\."):
        Server("a", n_blocks, tps)
