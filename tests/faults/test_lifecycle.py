"""The guard around a fault: order, failure, and the rows it leaves."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.faults.lifecycle import ORDER, FaultFailed, Lifecycle, Stage, WrongOrder


class FakeSteps:
    """Notes what is called; fails where told."""

    def __init__(self, failing=None, error=None):
        self.called = []
        self.failing, self.error = failing, error or FaultFailed("it did not work")

    def __getattr__(self, name):
        stage = Stage(name)

        def step():
            self.called.append(stage)
            if stage == self.failing:
                raise self.error
            return f"{name} done"

        return step


def start(failing=None, error=None):
    rows = []
    steps: Any = FakeSteps(failing, error)
    return Lifecycle(steps, rows.append, {"fault": "kill", "target": "s1"}), steps, rows


def advance(life, stage):
    getattr(life, stage.value)()


def test_a_whole_life_leaves_a_row_per_stage():
    life, steps, rows = start()
    for stage in ORDER:
        advance(life, stage)
    assert steps.called == ORDER
    assert life.valid
    assert rows == [
        {"fault": "kill", "target": "s1", "stage": stage.value, "ok": True, "detail": f"{stage.value} done"}
        for stage in ORDER
    ]


@given(st.lists(st.sampled_from(ORDER), max_size=8))
def test_only_the_one_order_is_ever_carried_out(asked):
    life, steps, rows = start()
    for stage in asked:
        with contextlib.suppress(WrongOrder):
            advance(life, stage)
    done = steps.called
    without_cleanup = done[:-1] if done[-1:] == [Stage.CLEANUP] else done
    assert without_cleanup == ORDER[: len(without_cleanup)]
    assert Stage.CLEANUP not in without_cleanup
    assert [row["stage"] for row in rows] == [stage.value for stage in done]


@pytest.mark.parametrize(
    ("before", "stage"),
    [
        ([], Stage.INJECT),
        ([], Stage.HEAL),
        ([Stage.SETUP], Stage.SETUP),
        ([Stage.SETUP], Stage.CONFIRM),
        ([Stage.SETUP, Stage.INJECT], Stage.HEAL),
        ([Stage.SETUP, Stage.CLEANUP], Stage.INJECT),
        ([Stage.CLEANUP], Stage.CLEANUP),
    ],
)
def test_wrong_order_is_an_error_and_does_nothing(before, stage):
    life, steps, rows = start()
    for earlier in before:
        advance(life, earlier)
    with pytest.raises(WrongOrder):
        advance(life, stage)
    assert steps.called == before
    assert len(rows) == len(before)


@pytest.mark.parametrize("failing", ORDER[:-1])
def test_after_a_failure_only_cleanup_is_allowed(failing):
    life, steps, rows = start(failing)
    reached = ORDER[: ORDER.index(failing) + 1]
    for stage in reached[:-1]:
        advance(life, stage)
    with pytest.raises(FaultFailed):
        advance(life, failing)
    assert not life.valid
    assert rows[-1]["ok"] is False
    assert rows[-1]["detail"] == "it did not work"
    for stage in ORDER[:-1]:
        with pytest.raises(WrongOrder):
            advance(life, stage)
    life.cleanup()
    assert steps.called == [*reached, Stage.CLEANUP]
    assert not life.valid


def test_an_unexpected_error_fails_the_stage_too():
    life, _, rows = start(Stage.INJECT, KeyboardInterrupt())
    life.setup()
    with pytest.raises(KeyboardInterrupt):
        life.inject()
    assert not life.valid
    assert rows[-1]["ok"] is False
    assert rows[-1]["detail"].startswith("KeyboardInterrupt")


def test_injected_but_never_confirmed_is_not_valid():
    life, _, _ = start()
    life.setup()
    assert life.valid
    life.inject()
    assert not life.valid
    life.cleanup()
    assert not life.valid
