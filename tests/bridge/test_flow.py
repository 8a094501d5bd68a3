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
