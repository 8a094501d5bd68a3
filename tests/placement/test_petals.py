"""The `petals` arm is the installed petals: same decisions, same targets, same use of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from swarmlab.placement import appendix_d as appendix_d_module
from swarmlab.placement import forecast as forecast_module
from swarmlab.placement import petals as petals_module
from swarmlab.placement.appendix_d import AppendixD
from swarmlab.placement.forecast import Outcome, forecast
from swarmlab.placement.layout import layout_of
from swarmlab.placement.petals import Petals
from swarmlab.placement.policy import Server
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView
from tests.placement.petals_views import (
    announcements,
    module_infos,
    peer_name,
    petals_choice,
    petals_should_move,
)
from tests.placement.views import random_view

NAMES = [peer_name(f"server {i}") for i in range(41)]


def infos_of(view: SwarmView) -> list[Any]:
    return module_infos(view.n_blocks, announcements(view))


def as_server(record: ServerRecord) -> Server:
    return Server(record.peer_id, record.span.length, record.throughput_tps, record.span)


def compare_decisions(*, seed: int, views: int, max_blocks: int, max_servers: int) -> int:
    """Asks both on random views; how many decisions were a move."""
    rng = np.random.default_rng(seed)
    moves = 0
    for i in range(views):
        view = random_view(rng, max_blocks=max_blocks, max_servers=max_servers, names=NAMES)
        deciders = [record for record in view.servers if record.state is not ServerState.OFFLINE]
        if not deciders:
            continue
        record = deciders[rng.integers(len(deciders))]
        quality = (0.0, 0.75, 0.75, 0.9, 1.0, 1.5)[rng.integers(6)]
        np.random.seed(i)  # noqa: NPY002 (petals draws from the global generator)
        expected = petals_should_move(record.peer_id, infos_of(view), quality)
        ours = np.random.RandomState(i)
        decision = Petals(balance_quality=quality).reconsider(view, as_server(record), None, ours)
        assert decision.moved == expected, (seed, i, decision)
        if "whoever moved" not in decision.reason:  # else nothing had to be simulated
            assert same_state(np.random.get_state(legacy=True), ours.get_state(legacy=True)), (seed, i)  # noqa: NPY002
        assert not (decision.moved and decision.keeps_target)
        moves += decision.moved
    return moves


def same_state(first: Any, second: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_decides_as_petals_on_thousands_of_random_views():
    assert compare_decisions(seed=1, views=4000, max_blocks=16, max_servers=10) > 400
    assert compare_decisions(seed=2, views=120, max_blocks=80, max_servers=40) > 10


def test_decides_as_petals_without_compiled_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forecast_module, "compiled", lambda: None)
    assert compare_decisions(seed=3, views=300, max_blocks=16, max_servers=10) > 20


@pytest.mark.parametrize("policy", [Petals(), Petals(0.95), AppendixD(0.01), AppendixD(0.2)])
def test_what_is_decided_without_a_simulation_is_what_it_would_have_found(
    policy: Petals | AppendixD, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(6)
    views = [random_view(rng, max_blocks=12, max_servers=30) for _ in range(600)]
    cases = [(view, as_server(view.servers[0])) for view in views if view.servers]

    def decisions() -> list[tuple[bool, str]]:
        found = [policy.reconsider(view, me, None, np.random.RandomState(0)) for view, me in cases]
        return [(decision.moved, decision.reason) for decision in found]

    quick = decisions()
    for module in (petals_module, appendix_d_module):
        monkeypatch.setattr(module, "most_possible", lambda _layout: np.inf)
    slow = decisions()
    assert [moved for moved, _ in quick] == [moved for moved, _ in slow]
    assert sum(a != b for (_, a), (_, b) in zip(quick, slow, strict=True)) > 20, "the short way was taken"
    assert 0 < sum(moved for moved, _ in quick) < len(quick)


def test_chooses_the_blocks_that_petals_chooses():
    rng = np.random.default_rng(4)
    for _ in range(1500):
        view = random_view(rng, max_blocks=40, max_servers=20, names=NAMES)
        width = int(rng.integers(1, view.n_blocks + 1))
        server = Server(peer_name("newcomer"), width, 1.0)
        decision = Petals().choose(view, server, np.random.RandomState(0))
        assert decision.target.start == petals_choice(width, infos_of(view))
        assert decision.target.length == width


def test_the_discarded_target_is_the_first_step_of_petals_own_simulation(monkeypatch: pytest.MonkeyPatch):
    from petals.server import block_selection

    steps: list[int] = []
    original = block_selection._choose_best_start
    monkeypatch.setattr(
        block_selection, "_choose_best_start", lambda *args: steps.append(original(*args)) or steps[-1]
    )
    rng = np.random.default_rng(5)
    compared = 0
    while compared < 100:
        view = random_view(rng, max_blocks=16, max_servers=10, names=NAMES)
        record = view.servers[0]
        if record.state is ServerState.OFFLINE:
            continue
        layout = layout_of(view)
        peer = layout.index(record.peer_id)
        assert peer is not None
        steps.clear()
        petals_should_move(record.peer_id, infos_of(view), 0.75)
        seen = forecast(layout, peer, np.random.RandomState(0), keep_connected=True)
        if seen.outcome is Outcome.SETTLED:
            assert seen.target.start == steps[0]
            compared += 1


def test_missing_own_records_do_not_crash_the_check():
    view = SwarmView(4, (ServerRecord("other", Span(0, 4), 1.0),))
    decision = Petals().reconsider(view, Server("me", 2, 1.0, Span(0, 2)), None, np.random.RandomState(0))
    assert not decision.moved
    assert "missing" in decision.reason


def test_an_empty_swarm_is_joined_at_the_first_block():
    decision = Petals().choose(SwarmView(4, ()), Server("me", 9, 2.0), np.random.RandomState(0))
    assert decision.target == Span(0, 4)
    assert decision.predicted_tps == 2.0
