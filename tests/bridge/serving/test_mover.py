"""A move, carried out with stand-ins for container, DHT and disk."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.blocks.loader import LoadedBlock  # noqa: E402
from swarmlab.bridge.events import EventLog, read_events  # noqa: E402
from swarmlab.bridge.serving.gates import Gates  # noqa: E402
from swarmlab.bridge.serving.loads import Loads, Stopped  # noqa: E402
from swarmlab.bridge.serving.mover import Mover, Tools  # noqa: E402
from swarmlab.bridge.serving.reload_account import (  # noqa: E402
    CANCELLED,
    FAILED,
    MENDED,
    MOVED,
    ROLLED_BACK,
    LoadMeter,
    ReloadAccount,
)
from swarmlab.placement.reload_plan import Mode, plan_move  # noqa: E402
from swarmlab.types import Span  # noqa: E402

OLD, NEW, FAR = Span(0, 4), Span(2, 6), Span(8, 12)


class Bench:
    """A server whose disk fails for the blocks in ``bad``, and whose sessions use blocks for a while."""

    def __init__(self, held=OLD, events=None, gate_dir=None, drain_s=0.0):
        self.modules = {block: object() for block in held}
        self.first_modules = dict(self.modules)
        self.said, self.loads, self.bad, self.sessions = [], [], {}, {}
        self.objections, self.deaf = [], False
        self.clock_s, self.stopping = 0.0, threading.Event()
        self.meter = LoadMeter()
        self.tools = Tools(
            shelf=self, say=self.say, loads=Loads(self, self.stopping), clock=lambda: self.clock_s,
            gates=Gates(gate_dir), events=EventLog(events), meter=self.meter, visible_s=0.0,
            drain_s=drain_s, load_deadline_s=5.0, stopping=self.stopping,
        )  # fmt: skip

    @property
    def blocks(self):
        return frozenset(self.modules)

    def add(self, modules):
        self.modules.update(modules)

    def remove(self, blocks):
        for block in blocks:
            del self.modules[block]

    def sessions_on(self, blocks):
        return max((self.sessions.get(block, 0) for block in blocks), default=0)

    def say(self, statement):
        assert statement.online is None or set(statement.online) <= set(self.modules)
        self.said.append((statement.online, statement.intent and statement.intent.span))
        return not self.deaf

    def load(self, block):
        self.loads.append(block)
        if block in self.bad:
            raise self.bad[block]
        return loaded_block(10, "store")

    def objection(self, _leaving):
        return self.objections.pop(0) if self.objections else None

    def move(self, old, new, mode):
        self.account = ReloadAccount(old, new, old)
        mover = Mover(self.tools, self.account, self.objection)
        result = mover.run(plan_move(old, new, mode))
        return result, self.account.row(result.outcome, result.at, result.reason, 10.0, None)


def loaded_block(n_bytes, source):
    module: Any = object()
    return LoadedBlock(module, n_bytes, 0.5, 0.25, 0.125, 0.0625, source)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("new", [NEW, FAR, Span(3, 7)])
def test_a_move_keeps_the_modules_of_both_spans_and_loads_the_rest_once(mode, new):
    bench = Bench()
    result, row = bench.move(OLD, new, mode)
    assert (result.outcome, result.at) == (MOVED, new)
    assert bench.blocks == set(new)
    assert all(bench.modules[block] is bench.first_modules[block] for block in OLD if block in new)
    assert sorted(bench.loads) == [block for block in new if block not in OLD]
    assert (row["kept"], row["loaded"], row["redundant"]) == (OLD.overlap(new), len(bench.loads), 0)
    assert row["completed"]
    assert bench.said[0] == (OLD, new)
    assert bench.said[-1] == (new, None)


def test_nothing_is_out_of_service_while_a_move_is_prepared():
    bench = Bench()
    _, row = bench.move(OLD, FAR, Mode.PREFETCH)
    assert [online for online, _ in bench.said] == [OLD, FAR]
    assert row["lost_block_s"] == row["out_of_service_s"] == 0.0


def test_the_intent_is_said_before_anything_is_loaded_or_dropped(tmp_path):
    bench = Bench(gate_dir=tmp_path)
    bench.move(OLD, NEW, Mode.PREFETCH)
    points = ["intent_announced", "loading:4", "loading:5", "loaded", "dropped", "swapped"]
    stamps = [(tmp_path / f"{point}.reached").stat().st_mtime_ns for point in points]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), OSError(28, "No space"), MemoryError()])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_block_that_cannot_be_loaded_sends_the_server_back_to_what_it_had(tmp_path, error, mode):
    bench = Bench(events=tmp_path / "events")
    bench.bad = {5: error}
    result, row = bench.move(OLD, NEW, mode)
    # in place, block 4 has come and block 0 has gone by then: 1:5 is whole, and going back would load 0
    home = OLD if mode is Mode.PREFETCH else Span(1, 5)
    assert (result.outcome, result.at) == (ROLLED_BACK, home)
    assert bench.blocks == set(home)
    assert bench.said[-1] == (home, None)
    assert type(error).__name__ in row["reason"]
    assert not row["completed"]
    (told,) = [event for event in read_events(tmp_path / "events")[0] if event["kind"] == "logs"]
    assert "rolled_back" in told["line"]


def test_what_cannot_be_got_back_is_said_to_be_missing_and_mended_later(tmp_path):
    bench = Bench(events=tmp_path / "events")
    bench.bad = {block: OSError("dead disk") for block in range(16)}
    result, _ = bench.move(OLD, NEW, Mode.IN_PLACE)
    assert (result.outcome, result.at) == (FAILED, OLD)
    assert bench.said[-1] == (Span(1, 4), OLD)
    bench.bad = {}
    account = ReloadAccount(OLD, OLD, Span(1, 4))
    assert Mover(bench.tools, account, bench.objection).mend(OLD)
    row = account.row(MENDED, OLD, "", 10.0, None)
    assert (row["kept"], row["loaded"], row["redundant"]) == (3, 1, 0)
    assert bench.blocks == set(OLD)
    assert bench.said[-1] == (OLD, None)


def test_an_objection_before_anything_was_dropped_cancels_and_withdraws_the_intent():
    bench = Bench()
    bench.objections = ["somebody else came"]
    result, row = bench.move(OLD, NEW, Mode.PREFETCH)
    assert (result.outcome, result.at, result.reason) == (CANCELLED, OLD, "somebody else came")
    assert bench.blocks == set(OLD)
    assert bench.said[-1] == (OLD, None)
    assert row["loaded"] == 2


def test_an_objection_after_the_new_span_was_announced_still_keeps_the_old_one():
    bench = Bench()
    bench.objections = [None, "the last other holder has gone"]
    result, _ = bench.move(OLD, NEW, Mode.PREFETCH)
    assert (result.outcome, result.at) == (CANCELLED, OLD)
    assert [online for online, _ in bench.said] == [OLD, NEW, OLD]
    assert all(bench.modules[block] is bench.first_modules[block] for block in OLD)


def test_in_place_a_move_that_is_given_up_stays_where_it_is_whole_and_loads_nothing_back():
    bench = Bench()
    bench.objections = [None, None, "taken"]
    result, _ = bench.move(OLD, NEW, Mode.IN_PLACE)
    assert (result.outcome, result.at) == (CANCELLED, Span(1, 5))
    assert bench.loads == [4]
    assert bench.said[-1] == (Span(1, 5), None)


def test_sessions_get_their_time_and_those_that_are_left_are_counted():
    bench = Bench(drain_s=0.2)
    bench.sessions = {0: 2, 1: 3, 2: 9}
    _, row = bench.move(OLD, NEW, Mode.PREFETCH)
    assert (row["sessions_open"], row["sessions_broken"]) == (3, 3)
    assert row["drain_s"] >= 0.2


def test_who_waits_for_nobody_does_not_wait():
    bench = Bench(drain_s=60.0)
    _, row = bench.move(OLD, NEW, Mode.PREFETCH)
    assert row["sessions_open"] == 0
    assert row["drain_s"] < 60.0


def test_a_server_that_was_stopped_between_looking_and_dropping_looks_again(monkeypatch):
    bench = Bench()
    bench.objections = [None, None, "somebody else came meanwhile"]
    monkeypatch.setattr("swarmlab.bridge.serving.mover.CHECK_HOLDS_S", -1.0)
    result, _ = bench.move(OLD, NEW, Mode.PREFETCH)
    assert (result.outcome, result.at) == (CANCELLED, OLD)


@given(st.sampled_from(Mode), st.sampled_from([NEW, FAR, Span(1, 5)]), st.data())
def test_whatever_fails_the_server_holds_what_it_says_and_its_result_tells_where(mode, new, data):
    bench = Bench()
    bench.bad = {block: OSError("bad") for block in data.draw(st.sets(st.integers(0, 12)))}
    bench.objections = data.draw(st.lists(st.sampled_from([None, "no"]), max_size=6))
    result, _ = bench.move(OLD, new, mode)
    online, _ = bench.said[-1]
    assert bench.blocks == set(online or ())
    if result.outcome != FAILED:
        assert online == result.at
    assert set(bench.loads) & set(OLD) == set() or mode is Mode.IN_PLACE


def test_a_server_that_ends_in_a_move_goes_nowhere_back():
    bench = Bench()
    bench.bad = {5: Stopped("the server is to end")}
    result, row = bench.move(OLD, NEW, Mode.PREFETCH)
    assert (result.outcome, result.at, result.reason) == (CANCELLED, OLD, "the server is to end")
    assert bench.said == [(OLD, NEW)]
    assert not row["completed"]
    assert not Mover(bench.tools, ReloadAccount(OLD, OLD, None), bench.objection).mend(Span(4, 8))


def test_an_intent_that_nobody_could_be_told_of_is_given_up_before_anything_is_loaded():
    """Of two servers that set out at once neither would see the other."""
    bench = Bench()
    bench.deaf = True
    result, _ = bench.move(OLD, NEW, Mode.IN_PLACE)
    assert (result.outcome, result.at) == (CANCELLED, OLD)
    assert "no record of the intent" in result.reason
    assert bench.loads == []
    assert bench.said[-1] == (OLD, None)


def test_measured_seconds_become_the_cost_of_the_next_decision():
    meter = LoadMeter()
    assert meter.cost().s_per_block == 30.0  # what the report says, before anything is known
    for seconds in (2.0, 4.0, 100.0):
        meter.add(seconds)
    assert meter.cost().s_per_block == 4.0
    assert meter.cost().reload_s(OLD, NEW) == 8.0


def test_an_account_adds_up_what_was_loaded_and_what_was_not_served():
    account = ReloadAccount(OLD, NEW, OLD)
    account.loaded(4, loaded_block(10, "store"))
    account.loaded(0, loaded_block(30, "checkpoint"))
    account.serves(Span(1, 4))
    account.serves(None)
    row = account.row(MOVED, NEW, "", 2.0, None)
    assert (row["bytes_read"], row["read_s"], row["quantize_s"], row["adapter_s"]) == (40, 1.0, 0.5, 0.25)
    assert row["sources"] == {"store": 1, "checkpoint": 1}
    assert row["redundant"] == 1
    assert row["lost_block_s"] >= 4 * row["out_of_service_s"] > 0
    assert row["lost_tps_s"] == 2.0 * row["lost_block_s"]
