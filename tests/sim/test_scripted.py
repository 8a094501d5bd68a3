# the policy of a test keeps the signatures of the others
# ruff: noqa: ARG002

from __future__ import annotations

from dataclasses import replace

import pytest

from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.petals import Petals
from swarmlab.placement.policy import stay
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.sim.scripted import Loss, Script, play
from swarmlab.sim.world import Arm
from swarmlab.types import Decision, Intent, Span
from tests.sim.swarms import TINY, Told, member

# R1 of the notes: with D's records missing, A (or B) would move to 2
MEMBERS = (member("A", 2, 100.0, 0.0), member("D", 2, 200.0, 1.0), member("B", 2, 100.0, 2.0))
LOSS = Loss("D", 100.0, 30.0, 0.5)
WORLD = replace(TINY, n_blocks=4, duration_s=300.0, check_period_s=10.0, s_per_block=1.0, sample_every_s=10.0)


def reloads(events):
    return [
        event.fields for event in events if event.kind == "reloads" and event.fields["old_start"] is not None
    ]


def played(policy, script, *, keeps=False, members=MEMBERS, seed=0, **changes):
    return play(replace(WORLD, **changes), members, Arm("arm", policy, keeps), script, seed)


def test_a_decision_on_lost_records_is_held_until_they_are_back_and_ends_where_it_began():
    moves = reloads(played(Petals(), Script(LOSS, settles_s=90.0)))
    assert moves
    assert all(move["no_op"] for move in moves)
    assert all(move["redundant"] == 2 for move in moves)


def test_without_a_loss_nobody_moves():
    assert reloads(played(Petals(), Script(settles_s=90.0))) == []


def test_fixed_servers_and_all_before_the_swarm_has_settled_stay():
    everybody = frozenset(one.name for one in MEMBERS)
    assert reloads(played(Petals(), Script(LOSS, fixed=everybody))) == []
    assert reloads(played(Petals(), Script(LOSS, settles_s=1000.0))) == []


def test_records_are_back_soon_after_a_decision_and_else_after_the_longest_time():
    events = played(Petals(), Script(LOSS, settles_s=90.0), sample_every_s=1.0)
    decided = next(
        event.t_s for event in events if event.kind == "decisions" and event.fields["phase"] == "check"
    )
    unseen = [
        event.t_s for event in events if event.kind == "balance" and event.fields["announced_swarm_tps"] == 0
    ]
    assert 100.0 <= decided < 130.0
    late = [t for t in unseen if decided < t < 130.0]
    assert max(late, default=decided) <= decided + 0.5 + 2.0
    nobody = played(JoinOnly(), Script(LOSS), sample_every_s=1.0)
    unseen = [
        event.t_s
        for event in nobody
        if event.kind == "balance" and event.t_s > 90.0 and event.fields["announced_swarm_tps"] == 0
    ]
    assert min(unseen) == pytest.approx(100.0, abs=1.0)
    assert max(unseen) == pytest.approx(130.0, abs=1.0)


def test_ours_loads_what_is_new_while_it_serves_on():
    told = Told(Span(0, 3), then=(Span(1, 4),))
    events = played(told, Script(), keeps=True, members=(member("A", 3, 100.0),), s_per_move=2.0)
    (move,) = reloads(events)
    assert (move["kept"], move["loaded"], move["redundant"], move["lost_block_s"]) == (2, 1, 0, 0.0)
    assert move["out_of_service_s"] == pytest.approx(3.0)  # from the decision; it serves meanwhile
    full = reloads(played(Told(Span(0, 3), then=(Span(1, 4),)), Script(), members=(member("A", 3, 100.0),)))
    assert (full[0]["loaded"], full[0]["redundant"], full[0]["lost_block_s"]) == (3, 2, 9.0)


class GoesAtOnce:
    """All join at 0:3. A goes to 1:4 at its first check, and says so only then; the others note what they see of A."""

    name = "goes at once"
    mean_check_period_s = mean_choice_delay_s = 0.0

    def __init__(self):
        self.seen = []

    def choose(self, view, server, rng):
        return Decision(True, None, Span(0, 3), 1.0, 0.0, self.name, "told")

    def reconsider(self, view, server, memory, rng):
        at_rest = stay(server, 1.0, self.name, "stays")
        if server.peer_id != "A":
            self.seen.append((view.seen_at_s, view.get("A")))
        elif server.span == Span(0, 3):
            return replace(at_rest, moved=True, target=Span(1, 4), intent=Intent(Span(1, 4), view.seen_at_s))
        return at_rest


def test_a_move_that_is_made_without_a_wait_is_seen_by_others_while_it_loads():
    policy = GoesAtOnce()
    members = (member("A", 3, 100.0), member("B", 3, 100.0))
    events = played(policy, Script(), keeps=True, members=members, s_per_move=30.0, check_period_s=4.0)
    decided_s = next(
        event.t_s for event in events if event.kind == "decisions" and event.fields["phase"] == "check"
    )
    (moved_s,) = [
        event.t_s for event in events if event.kind == "reloads" and event.fields["old_start"] is not None
    ]
    meanwhile = [record for t, record in policy.seen if decided_s < t < moved_s]
    assert len(meanwhile) > 3
    assert {(record.span, record.intent.span if record.intent else None) for record in meanwhile} == {
        (Span(0, 3), Span(1, 4))
    }
    after = [record for t, record in policy.seen if t > moved_s]
    assert {(record.span, record.intent) for record in after} == {(Span(1, 4), None)}


def test_the_same_seed_plays_the_same():
    script = Script(LOSS, settles_s=90.0)
    assert played(Swarmlab(), script, keeps=True) == played(Swarmlab(), script, keeps=True)


def test_a_swarm_that_never_moves_stays_where_it_joined():
    assert reloads(played(JoinOnly(), Script(LOSS))) == []
