"""The known causes of needless reloads: what the original does (asked itself) and what ours does instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from swarmlab.placement.memory import Memory
from swarmlab.placement.petals import Petals
from swarmlab.placement.policy import Server
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.placement.testimony import Answer, Answers
from swarmlab.types import MAX_THROUGHPUT_TPS, Decision, Span
from tests.placement.golden import Case, span, steps
from tests.placement.petals_views import module_infos, peer_name, petals_choice, petals_should_move, view_of
from tests.placement.play import play

SEEDS = range(20)


def named(part: str, kind: str | None = None) -> list[Any]:
    found = [
        pytest.param(case, step, id=f"{case.name}-{number}")
        for number, (case, step) in enumerate(steps(part))
        if kind is None or kind in step
    ]
    assert found
    return found


@pytest.mark.parametrize(("case", "step"), named("original"))
def test_the_original_answers_as_recorded(case: Case, step: Mapping[str, Any]):
    peer, look = peer_name(step["server"]), step["look"]
    infos = module_infos(case.n_blocks, case.as_stored(look, step))
    if "chooses" in step:
        assert petals_choice(case.span(step["server"]).length, infos) == step["chooses"]
        return
    answers = []
    for seed in SEEDS:
        np.random.seed(seed)  # noqa: NPY002 (petals draws from the global generator)
        answers.append(petals_should_move(peer, infos, 0.75))
    if "depends_on_draw" in step:
        assert set(answers) == {True, False}
    else:
        assert set(answers) == {"moves_to" in step}


def within_bounds(case: Case) -> bool:
    """Can a view of ours hold the numbers? The original takes any."""
    return all(float(given["tps"]) <= MAX_THROUGHPUT_TPS for given in case.servers.values())


@pytest.mark.parametrize(
    ("case", "step"), [param for param in named("original") if within_bounds(param.values[0])]
)
def test_our_petals_arm_answers_as_the_original(case: Case, step: Mapping[str, Any]):
    server = step["server"]
    view = view_of(module_infos(case.n_blocks, case.as_stored(step["look"], step)))
    me = Server(peer_name(server), case.span(server).length, case.throughput_tps(server), case.span(server))
    for shown, expected in step.get("sees", {}).items():
        record = view.get(peer_name(shown))
        assert record is not None
        assert record.span == span(expected)
    if "chooses" in step:
        assert Petals().choose(view, me, np.random.RandomState(0)).target.start == step["chooses"]
        return
    decisions = [Petals().reconsider(view, me, None, np.random.RandomState(seed)) for seed in SEEDS]
    if "depends_on_draw" in step:
        assert {quality(decision) for decision in decisions} == set(step["depends_on_draw"])
        return
    for decision in decisions:
        assert decision.moved == ("moves_to" in step)
        if decision.moved:
            assert decision.target.start == step["moves_to"]
            assert not decision.keeps_target
        if "quality" in step:
            assert quality(decision) == step["quality"]


def quality(decision: Decision) -> float:
    stated = re.search(r"quality ([\d.]+)%", decision.reason)
    assert stated is not None, decision
    return float(stated[1])


@pytest.mark.parametrize(("case", "step"), named("ours", "server"))
def test_ours_decides_rightly(case: Case, step: Mapping[str, Any]):
    me = as_server(case, step["server"])
    memory: Memory | None = None
    wanted: set[Span] = set()
    looks = step["looks"] if "looks" in step else [step["look"]] * 10
    decision: Decision | None = None
    now_s = case.as_seen(looks[0]).seen_at_s
    for number, look in enumerate(looks):
        view = case.as_seen(look)
        if "looks" not in step:  # the same picture again and again, as the policy asks for it
            view = type(view)(view.n_blocks, view.servers, seen_at_s=now_s)
        if memory is not None and "answers" in step:
            memory = replace(memory, testimony=heard(step["answers"]))
        decision = Swarmlab().reconsider(view, me, memory, np.random.default_rng(number))
        memory = decision.memory
        if decision.intent is not None:
            wanted.add(decision.intent.span)
        if step.get("stays"):
            assert not decision.moved, decision
        if decision.moved:
            break
        now_s += decision.check_again_s or 60.0
    if "goes_to" in step:
        assert decision is not None
        assert decision.moved
        assert decision.target == span(step["goes_to"])
    if "wants" in step:
        assert wanted == {span(step["wants"])}


def heard(answers: Mapping[str, str]) -> Answers:
    return Answers({server: Answer(answer) for server, answer in answers.items()})


@pytest.mark.parametrize(("case", "step"), named("ours", "everybody"))
def test_a_swarm_of_ours_ends_rightly(case: Case, step: Mapping[str, Any]):
    result = play(Swarmlab(), case.n_blocks, [as_server(case, server) for server in case.servers])
    if "moves" in step:
        assert {peer: str(new) for _, peer, _, new in result.moves} == step["moves"]
    assert len(result.moves) == step.get("n_moves", len(result.moves))
    assert result.blocks_loaded == step["blocks_loaded"]
    assert result.swarm_tps == pytest.approx(step["swarm_tps"])
    assert not result.unserved


def as_server(case: Case, server: str) -> Server:
    return Server(server, case.span(server).length, case.throughput_tps(server), case.span(server))
