"""A session over a fake swarm: whatever fails when, every completed step is exactly right."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from swarmlab.bridge import compat

compat.apply()

from tests.bridge.driver import Driver, drive  # noqa: E402
from tests.bridge.scenarios import SCENARIOS  # noqa: E402
from tests.bridge.scripts import Script, scripts  # noqa: E402


def play(script: Script) -> Driver:
    return drive(
        script.play,
        *script.spans,
        n_blocks=script.n_blocks,
        batch=script.batch,
        push=script.push,
        replay_tokens=script.replay_tokens,
    )


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
long = settings(quick, max_examples=4000)


@quick
@given(scripts())
def test_every_completed_step_is_that_of_a_session_without_failures(script):
    play(script)


@pytest.mark.slow
@pytest.mark.timeout(900)
@long
@given(scripts())
def test_the_same_for_a_long_time(script):
    play(script)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    SCENARIOS[name].run()


def test_a_listener_that_fails_does_not_harm_the_session(caplog):
    async def story(driver: Driver) -> None:
        def fail(_event: dict) -> None:
            raise RuntimeError("a bad listener")

        driver.flow._on_event = fail
        assert await driver.step(10)
        driver.server_at(0).kill()
        assert await driver.step()
        assert await driver.step()

    drive(story, (0, 4), (0, 4))
    assert "a bad listener" in caplog.text


def test_inputs_of_earlier_steps_can_be_had_as_long_as_their_row_order_is_known():
    async def story(driver: Driver) -> None:
        assert await driver.step(10)
        assert await driver.step(rows=[1, 0])
        first = driver.flow.history_of(0, 1)
        assert first is not None
        assert first.shape == (2, 10, 2)
        driver.swarm.after(3, lambda here: here.kill())
        assert await driver.step(rows=[1, 1])
        assert [str(span) for span, _ in driver.flow.spans] == ["0:2", "2:4", "4:6"]
        remade = driver.flow.history_of(4, 3)
        assert remade is not None
        assert remade.shape == (2, 12, 2)
        assert driver.flow.history_of(4, 2) is None, "its history was made anew after the rows moved"
        assert driver.flow.history_of(3, 1) is None, "no span begins there"

    drive(story, (0, 2), (2, 6), (2, 4), (4, 6), n_blocks=6, batch=2)
