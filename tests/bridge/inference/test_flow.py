"""A session over a fake swarm: whatever fails when, every completed step is exactly right."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.clients.calm import _rebuild_all  # noqa: E402
from tests.bridge import fake_swarm  # noqa: E402
from tests.bridge.driver import Driver, drive  # noqa: E402
from tests.bridge.fake_swarm import COMPUTE_S, CONNECT_S, Server  # noqa: E402
from tests.bridge.scenarios import SCENARIOS  # noqa: E402
from tests.bridge.scripts import Fault, Rewind, Script, Step, Wait, scripts  # noqa: E402


def play(script: Script, **settings: int) -> Driver:
    return drive(
        script.play,
        *script.spans,
        n_blocks=script.n_blocks,
        batch=script.batch,
        push=script.push,
        replay_tokens=script.replay_tokens,
        **settings,
    )


quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
long = settings(quick, max_examples=4000)


@quick
@given(scripts())
def test_every_completed_step_is_that_of_a_session_without_failures(script):
    play(script)


def step(n_tokens: int, *, interrupt: int | None = None, again: bool = False) -> Step:
    return Step(n_tokens, rows=None, prompt_tokens=0, shared_prompt=False, interrupt=interrupt, again=again)


@pytest.mark.parametrize(
    ("script", "moment", "last"),
    [
        (
            Script(3, 4, ((0, 1), (1, 3), (0, 3)), 1024, push=False, push_delays_s=(0.005,), ops=()),
            1,
            step(2, again=True),
        ),
        (
            Script(5, 2, ((0, 5), (0, 3), (2, 5)), 7, push=False, push_delays_s=(0.0,), ops=()),
            4,
            step(1, interrupt=5, again=True),
        ),
    ],
)
def test_a_dial_whose_time_is_over_but_for_rounding_is_over(script, moment, last):
    kill = Fault("kill", server=None, moment=1, span=(0, 1), number=0)
    hang = replace(kill, kind="hang", moment=moment)
    first = step(17 if moment == 1 else 18)
    play(replace(script, ops=(first, kill, Wait(0.005), step(1), hang, Rewind(0), last)))


@quick
@given(scripts())
def test_the_same_with_warm_standbys(script):
    play(script, standby_tokens=3)


@quick
@given(scripts())
def test_the_same_beside_another_session_of_the_client(script):
    async def two(driver: Driver) -> None:
        driver.accompany()
        await script.play(driver)

    drive(two, *script.spans, n_blocks=script.n_blocks, batch=script.batch, push=script.push)


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

        driver.flow._repairs._on_event = fail
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


def test_a_warm_standby_takes_over_with_only_the_newest_tokens_replayed():
    async def story(driver: Driver) -> None:
        assert await driver.step(40)
        for _ in range(20):
            assert await driver.step(rows=[1, 0])
        await asyncio.sleep(5)
        driver.server_at(5).kill()
        assert await driver.step(rows=[1, 1])
        assert await driver.step()
        [event] = driver.events
        assert event["from_standby"]
        assert event["tokens_replayed"] <= 2 * (8 + 1)  # two rows, at most the lag and the newest token

    drive(story, (0, 3), (3, 6), (3, 6), n_blocks=6, batch=2, standby_tokens=8)


def test_a_standby_that_died_meanwhile_costs_nothing_but_a_whole_replay():
    async def story(driver: Driver) -> None:
        assert await driver.step(40)
        assert await driver.step()
        await asyncio.sleep(5)
        used = driver.server_at(5)
        standbys = [one for one in driver.servers if one is not used and one.span == used.span]
        for one in (used, standbys[0]):
            one.kill()
        assert await driver.step()
        assert await driver.step()

    drive(story, (0, 3), (3, 6), (3, 6), (3, 6), n_blocks=6, standby_tokens=8)


@pytest.mark.parametrize(("hangs", "probe_s"), [(False, 1.0), (True, 0.3)])
def test_of_a_spare_that_is_busy_others_hear_only_if_it_answers_no_probe(monkeypatch, hangs, probe_s):
    async def story(driver: Driver) -> None:
        spare = await busy_spare(driver, seconds=5.0)
        if hangs:
            spare.hang()
        monkeypatch.setattr(fake_swarm, "PROBE_S", 0.8)  # longer than a late step of this session
        driver.server_at(5).kill()
        assert await driver.step()
        shared = driver.flow.session.router._known.bans
        banned = shared.excluded(driver.swarm.now_s, driver.swarm.view())
        assert (spare.peer_id.to_base58() in banned) == hangs

    drive(story, (0, 3), (3, 6), (3, 6), (3, 6), n_blocks=6, standby_tokens=8, probe_s=probe_s)


async def busy_spare(driver: Driver, seconds: float) -> Server:
    """The spare of the last blocks, which needs so long for what it is being fed now."""
    assert await driver.step(40)
    assert await driver.step()
    await asyncio.sleep(5)
    standby = driver.flow._links[1].standby
    spare = driver.swarm.server_of(standby.link.stream.peer_id)
    spare.slow_s = seconds
    for _ in range(9):
        assert await driver.step()
    assert not standby.idle
    return spare


def test_without_spares_there_are_no_standbys():
    async def story(driver: Driver) -> None:
        for _ in range(10):
            assert await driver.step(5)
        assert driver.flow.standby_cost.tokens == 0

    drive(story, (0, 3), (3, 6), n_blocks=6, standby_tokens=2)


def test_the_work_of_a_recovery_can_be_done_in_peace_without_harm_to_the_session():
    async def story(driver: Driver) -> None:
        assert await driver.step(20)
        assert await driver.step(rows=[1, 0])
        spare = [one for one in driver.servers if one is not driver.server_at(5) and one.span.start == 3]
        place = {"start": 3, "end": 6, "peer": spare[0].peer_id.to_base58()}
        seconds = await _rebuild_all(driver.flow, [place], 2)
        assert seconds == pytest.approx(CONNECT_S + COMPUTE_S)
        assert await _rebuild_all(driver.flow, [{**place, "start": 2}], 2) is None, "no span begins there"
        assert await driver.step(rows=[1, 1])
        driver.server_at(5).kill()
        assert await driver.step()

    drive(story, (0, 3), (3, 6), (3, 6), n_blocks=6, batch=2)


def test_servers_that_all_need_longer_than_the_hard_limit_are_not_given_up_for_ever():
    def is_slow(server: Server) -> None:
        server.slow_s = 35.0

    async def story(driver: Driver) -> None:
        for moment in range(1, 60):
            driver.swarm.after(moment, is_slow)
        assert await driver.step(5), driver.errors
        assert await driver.step()

    drive(story, (0, 3), (0, 3), (0, 3), n_blocks=3)
