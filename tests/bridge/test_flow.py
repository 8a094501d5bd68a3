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
