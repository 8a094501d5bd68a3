"""How our server turns a policy's decisions into intents, moves and waits; petals and the swarm are stand-ins."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge import server as module  # noqa: E402
from swarmlab.bridge.serving import caretaker  # noqa: E402
from swarmlab.bridge.serving.announcer import Statement  # noqa: E402
from swarmlab.bridge.serving.caretaker import Caretaker  # noqa: E402
from swarmlab.bridge.serving.gates import Gates  # noqa: E402
from swarmlab.bridge.serving.mover import Result  # noqa: E402
from swarmlab.bridge.serving.reload_account import CANCELLED, FAILED, MOVED, ROLLED_BACK, LoadMeter  # noqa: E402
from swarmlab.placement.memory import Memory, Wish  # noqa: E402
from swarmlab.placement.reload_plan import MemoryPlan, Mode  # noqa: E402
from swarmlab.placement.swarmlab import Swarmlab  # noqa: E402
from swarmlab.placement.testimony import Answer, Answers  # noqa: E402
from swarmlab.types import Decision, Intent, Span, SwarmView  # noqa: E402

HERE, TARGET = Span(0, 4), Span(2, 6)
PERIOD_S = 10.0


def decision(target=HERE, *, moved=False, **more):
    return Decision(moved, HERE, target, 2.0, 1.0, "fake", "because", **more)


class Stage:
    """One server that has joined, whose policy says what the test wants and whose moves end as the test wants."""

    def __init__(self, monkeypatch):
        self.rows, self.said, self.plans, self.watched = [], [], [], 0
        self.decision, self.asked = decision(), []
        self.result = Result(MOVED, TARGET, "")
        self.view: SwarmView | None = SwarmView(16, ())
        server: Any = object.__new__(module.Server)
        server._policy = SimpleNamespace(reconsider=self._reconsider)
        server._options = SimpleNamespace(reload="auto", visible_s=0, drain_s=0, load_deadline_s=1)
        server._events = SimpleNamespace(
            emit=lambda kind, **row: self.rows.append((kind, row)), log=self._log
        )
        server._announcer = SimpleNamespace(say=self.said.append)
        server._shelf = SimpleNamespace(
            blocks=frozenset(HERE), modules=dict, is_healthy=True, container=None, add=None, remove=None
        )
        self.testimony, self.hole = None, False
        server._outlook = SimpleNamespace(
            look_patiently=lambda: self.view, objections=lambda *_: None,
            ask=lambda _policy, _view, _itself, memory: self._ask(memory), must_check=self._must_check,
        )  # fmt: skip
        server._gates, server._meter, server._loads = Gates(None), LoadMeter(), None
        server._memory, server._span, server._intent, server._setbacks = None, HERE, None, 0
        server._watched_s = 0.0
        server._rng, server._waits = np.random.default_rng(0), random.Random(0)
        server._peer_id, server.num_blocks = "me", 4
        server.server_info = SimpleNamespace(throughput=10.0)
        server.mean_balance_check_period, server.strict_block_indices = PERIOD_S, None
        server.stop = threading.Event()
        self.dht_alive = True
        parts: tuple[Any, ...] = (
            server._shelf, SimpleNamespace(serving=True), SimpleNamespace(is_alive=lambda: self.dht_alive),
            server._events, server.stop,
        )  # fmt: skip
        server._caretaker = Caretaker(*parts)
        self.server = server
        plan = MemoryPlan(Mode.PREFETCH, 1, 2, "")
        monkeypatch.setattr(module, "plan_memory", lambda *_: plan)
        monkeypatch.setattr(module.Mover, "run", lambda _mover, plan: self._run(plan))
        monkeypatch.setattr(module.Mover, "mend", lambda _mover, home: self._mend(home))
        self.mends = True

    def _reconsider(self, view, itself, memory, _rng):
        self.asked.append((view, itself, memory))
        return self.decision

    def _ask(self, memory):
        return memory if self.testimony is None else replace(memory or Memory(), testimony=self.testimony)

    def _must_check(self, *_):
        self.watched += 1
        return self.hole

    def _log(self, level, line, **_):
        self.rows.append(("logs", {"level": level, "line": line}))

    def _run(self, plan):
        self.plans.append(plan)
        return self.result

    def _mend(self, home):
        self.plans.append(home)
        return self.mends

    def look(self):
        return self.server._look()

    def wait(self, wait_s):
        return self.server._caretaker.wait(wait_s, self.server._must_check)

    def told(self, kind):
        return [row for name, row in self.rows if name == kind]


@pytest.fixture
def stage(monkeypatch):
    return Stage(monkeypatch)


def test_a_check_that_says_stay_changes_nothing_and_the_next_comes_at_random_within_two_periods(stage):
    waits = [stage.look() for _ in range(200)]
    assert 0 <= min(waits) < 0.5
    assert 19.5 < max(waits) <= 2 * PERIOD_S
    assert not stage.rows
    assert not stage.said


def test_a_target_that_is_the_present_span_is_no_move_whatever_the_policy_calls_it(stage):
    stage.decision = decision(HERE, moved=True)
    stage.look()
    assert not stage.plans
    assert not stage.told("reloads")


def test_an_intent_is_said_once_and_withdrawn_when_the_policy_drops_it(stage):
    intent = Intent(TARGET, 5.0)
    stage.decision = decision(intent=intent, check_again_s=3.0)
    assert stage.look() == 3.0
    stage.look()
    assert stage.said == [Statement(HERE, intent)]
    stage.decision = decision()
    stage.look()
    assert stage.said[1:] == [Statement(HERE, None)]
    assert [row["intent"] for row in stage.told("decisions")] == ["2:6", None]


def test_a_move_goes_to_the_decided_target_and_to_no_other(stage):
    stage.decision = decision(TARGET, moved=True)
    stage.look()
    (row,), (reload,) = stage.told("decisions"), stage.told("reloads")
    assert (row["old"], row["target"], row["chosen"], row["moved"]) == ("0:4", "2:6", "2:6", True)
    assert (row["policy"], row["reason"], row["predicted_gain"]) == ("fake", "because", 1.0)
    assert len(stage.plans) == 1
    assert (reload["outcome"], reload["new_start"], reload["new_end"]) == ("moved", 2, 6)
    assert stage.server._here == TARGET


def test_a_move_that_was_not_made_is_not_remembered_as_one(stage):
    wish = Wish(TARGET, 1.0)
    stage.server._memory = Memory(confirmations=3, wish=wish)
    stage.decision = decision(TARGET, moved=True, memory=Memory(confirmations=9))
    stage.result = Result(CANCELLED, HERE, "taken")
    stage.look()
    assert stage.server._memory == Memory(confirmations=3, wish=None)
    assert stage.server._here == HERE


def test_what_servers_say_themselves_reaches_the_policy_and_is_no_more_true_after_a_move_that_failed(stage):
    stage.testimony = Answers({"a": Answer.REFUSED})
    stage.decision = decision(TARGET, moved=True)
    stage.result = Result(CANCELLED, HERE, "taken")
    stage.look()
    assert stage.asked[0][2] == Memory(testimony=stage.testimony)
    assert stage.server._memory == Memory()


def test_a_move_decided_at_once_is_announced_as_the_policy_says(stage):
    intent, seen = Intent(TARGET, 7.0), []
    stage.server._outlook.objections = lambda _itself, _here, decided, said, _view: seen.append(
        (decided, said)
    )
    stage.decision = decision(TARGET, moved=True, intent=intent, check_again_s=9.0)
    stage.look()
    assert seen == [(stage.decision, intent)]


@pytest.mark.parametrize("hole", [True, False])
def test_between_checks_it_looks_for_blocks_that_nobody_serves(stage, monkeypatch, hole):
    monkeypatch.setattr(caretaker, "TICK_S", 0.005)
    stage.server._policy, stage.hole = Swarmlab(watch_s=0.01), hole
    begun = time.monotonic()
    assert not stage.wait(30.0 if hole else 0.1)
    assert (time.monotonic() - begun < 30.0) or not hole
    assert stage.watched == 1 if hole else stage.watched > 1


def test_after_a_setback_and_with_fixed_blocks_nothing_is_watched(stage, monkeypatch):
    monkeypatch.setattr(caretaker, "TICK_S", 0.005)
    stage.server._policy, stage.hole = Swarmlab(watch_s=0.01), True
    stage.server._setbacks = 1
    assert not stage.wait(0.05)
    stage.server._setbacks, stage.server.strict_block_indices = 0, range(4)
    assert not stage.wait(0.05)
    assert stage.watched == 0


def test_after_setbacks_it_waits_longer_and_longer_until_a_move_is_made(stage):
    stage.decision = decision(TARGET, moved=True)
    stage.result = Result(ROLLED_BACK, HERE, "no disk")
    assert [stage.look() / PERIOD_S for _ in range(6)] == [2, 4, 8, 16, 16, 16]
    stage.result = Result(MOVED, TARGET, "")
    assert stage.look() <= 2 * PERIOD_S


def test_a_span_with_a_hole_is_mended_before_anything_else_is_considered(stage):
    stage.decision = decision(TARGET, moved=True)
    stage.result = Result(FAILED, HERE, "dead disk")
    stage.look()
    assert stage.told("servers")[-1]["state"] == "damaged"
    stage.server._shelf.blocks = frozenset({1, 2})
    stage.mends = False
    assert stage.look() == 4 * PERIOD_S
    stage.mends = True
    stage.look()
    assert stage.plans[1:] == [HERE, HERE]
    assert len(stage.asked) == 1
    assert stage.told("servers")[-1]["state"] == "online"
    assert [row["outcome"] for row in stage.told("reloads")] == ["failed", "mended"]


def test_a_swarm_that_cannot_be_seen_moves_nobody(stage):
    stage.view = None
    assert stage.look() <= 2 * PERIOD_S
    assert not stage.asked


def test_a_server_whose_dht_has_died_cannot_be_reached_and_ends(stage):
    stage.dht_alive = False
    with pytest.raises(ConnectionError):
        stage.wait(5.0)


def test_a_pinned_server_asks_nobody(stage):
    stage.server.strict_block_indices = range(4)
    stage.decision = decision(TARGET, moved=True)
    stage.look()
    assert not stage.asked
    assert stage.server._first_decision().target == HERE


def test_the_policy_is_told_what_loading_costs_here(stage):
    stage.server._meter.add(2.5)
    stage.look()
    _, itself, _ = stage.asked[0]
    assert (itself.load.s_per_block, itself.load.keeps_overlap) == (2.5, True)
    assert (itself.peer_id, itself.span, itself.throughput_tps) == ("me", HERE, 10.0)
