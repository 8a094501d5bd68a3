"""Short stories of failures, each named for what goes wrong in it. They hold for the client as it is; each of the
broken variants in ``test_mutants.py`` must fail one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from swarmlab.recovery.failure import Cause, RecoveryFailed, RequestRejected
from swarmlab.types import Span
from tests.bridge.driver import Driver, drive
from tests.bridge.fake_swarm import BACKOFF_S, COMPUTE_S, DHT_S, RECORD_S

Play = Callable[[Driver], Coroutine[Any, Any, None]]
THREE = ((0, 2), (2, 4), (4, 6))


@dataclass(frozen=True)
class Scenario:
    play: Play
    spans: tuple[tuple[int, int], ...]
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Driver:
        return drive(self.play, *self.spans, n_blocks=6, **self.options)


SCENARIOS: dict[str, Scenario] = {}


def scenario(*spans: tuple[int, int], **options: Any) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        SCENARIOS[play.__name__] = Scenario(play, spans, options)
        return play

    return add


def in_turns(n_turns: int, action: Callable[[], Any]) -> None:
    """Have ``action`` done after so many turns of the event loop."""
    loop = asyncio.get_running_loop()
    if n_turns == 0:
        action()
    else:
        loop.call_soon(in_turns, n_turns - 1, action)


async def took_s(driver: Driver, **step: Any) -> float:
    """Seconds of a step, which must be completed."""
    began_s = driver.swarm.now_s
    assert await driver.step(**step), driver.errors
    return driver.swarm.now_s - began_s


@scenario(*THREE, *THREE)
async def first_span_dies(driver: Driver) -> None:
    assert await driver.step(20)
    for block in (0, 2, 4):
        driver.server_at(block).kill()
        assert await driver.step()
        assert await driver.step()
    assert [event["cause"] for event in driver.events] == ["broken"] * 3
    assert [event["span"] for event in driver.events] == ["0:2", "2:4", "4:6"]


@scenario((0, 3), (3, 6), (3, 4), (4, 5), (5, 6))
async def one_server_is_replaced_by_three(driver: Driver) -> None:
    assert await driver.step(20)
    driver.server_at(3).kill()
    assert await driver.step()
    assert [str(span) for span, _ in driver.flow.spans] == ["0:3", "3:4", "4:5", "5:6"]
    driver.server_at(0)
    assert await driver.step(3)


@scenario(*THREE, *THREE)
async def prefill_fails(driver: Driver) -> None:
    driver.swarm.after(3, lambda here: here.kill())
    assert await driver.step(40)
    assert await driver.step()


@scenario(*THREE, *THREE, batch=3)
async def beams_move_between_rows(driver: Driver) -> None:
    assert await driver.step(10)
    assert await driver.step(rows=[2, 0, 0])
    assert await driver.step(rows=[1, 1, 2])
    driver.server_at(2).kill()
    assert await driver.step(rows=[2, 2, 0])
    assert await driver.step()


@scenario(*THREE, *THREE, batch=3)
async def prompts_move_with_their_rows(driver: Driver) -> None:
    assert await driver.step(10, prompt_tokens=4)
    assert await driver.step(5, prompt_tokens=2, shared_prompt=True)
    assert await driver.step(rows=[2, 0, 0])
    driver.server_at(2).kill()
    assert await driver.step(rows=[1, 1, 2])
    assert await driver.step()


@scenario(*THREE, *THREE, batch=3, replay_tokens=30)
async def history_is_longer_than_a_request_may_be(driver: Driver) -> None:
    for server in driver.servers:
        server.max_batch_tokens = 30
    for _ in range(6):
        assert await driver.step(8)
    driver.server_at(2).kill()
    assert await driver.step(12)
    assert await driver.step(40)


@scenario(*THREE, *THREE)
async def step_is_interrupted_half_way(driver: Driver) -> None:
    assert await driver.step(10)
    for moment in range(1, 7):
        for again in (True, False):

            def plan(task: asyncio.Task, moment: int = moment) -> None:
                driver.swarm.after(moment, lambda _: task.cancel())

            await driver.step(2, interrupt=plan, again=again)
            assert await driver.step()
    assert not driver.errors


@scenario(*THREE, batch=3)
async def interrupted_step_had_moved_rows(driver: Driver) -> None:
    assert await driver.step(10)
    for moment in (1, 3, 5):

        def plan(task: asyncio.Task, moment: int = moment) -> None:
            driver.swarm.after(moment, lambda _: task.cancel())

        assert not await driver.step(rows=[2, 0, 0], interrupt=plan, again=False)
        assert await driver.step(rows=[0, 2, 1])


@scenario(*THREE, batch=2)
async def steps_are_taken_back(driver: Driver) -> None:
    for n_tokens in (10, 1, 1, 3):
        assert await driver.step(n_tokens, rows=[1, 0])
    await driver.rewind(2)
    assert await driver.step(2)
    await driver.rewind(0)
    assert await driver.step(5)


@scenario((0, 2), (2, 6), (2, 4), (4, 6), batch=3)
async def split_in_a_step_that_moved_rows_and_was_taken_back(driver: Driver) -> None:
    assert await driver.step(10)
    assert await driver.step()
    driver.swarm.after(3, lambda here: here.kill())
    assert await driver.step(rows=[2, 0, 0])
    assert [str(span) for span, _ in driver.flow.spans] == ["0:2", "2:4", "4:6"]
    await driver.rewind(2)
    assert [str(span) for span, _ in driver.flow.spans] == ["0:2", "2:6"]
    assert await driver.step(rows=[0, 1, 1])
    assert await driver.step()


@scenario(*THREE, *THREE, push=True, replay_tokens=4)
async def pushed_pieces_overtake_one_another(driver: Driver) -> None:
    driver.swarm.push_delays_s = [0.05, 0.0, 0.03]
    assert await driver.step(3)
    assert await driver.step()
    assert driver.swarm.n_pushes > 0
    for n_tokens in (12, 1, 9, 1):
        assert await driver.step(n_tokens)


@scenario(*THREE, *THREE, push=True, batch=2)
async def pushes_in_a_beam_search(driver: Driver) -> None:
    driver.swarm.push_delays_s = [0.0]
    assert await driver.step(3)
    for _ in range(3):
        assert await driver.step(rows=[1, 1])
    assert driver.swarm.n_pushes == 0


@scenario(*THREE, *THREE, push=True)
async def pushes_after_deep_prompts(driver: Driver) -> None:
    driver.swarm.push_delays_s = [0.0]
    assert await driver.step(8, prompt_tokens=4)
    for _ in range(3):
        assert await driver.step(4)
    assert driver.swarm.n_pushes == 0


@scenario(*THREE, *THREE, push=True)
async def a_resumed_server_pushes_late(driver: Driver) -> None:
    driver.swarm.push_delays_s = [0.0, 0.02]
    assert await driver.step(10)
    assert await driver.step()
    for block in (0, 2):
        hung = driver.server_at(block)
        driver.swarm.after(1, lambda _, hung=hung: hung.hang())
        assert await driver.step()
        hung.resume()
        for _ in range(3):
            assert await driver.step()
    assert driver.swarm.n_pushes > 0


@scenario(*THREE, (0, 6))
async def servers_refuse_the_request_itself(driver: Driver) -> None:
    assert await driver.step(10)
    for server in driver.servers:
        server.refusals = ["bad input in the block"] * 3
    began_s = driver.swarm.now_s
    assert not await driver.step()
    assert isinstance(driver.errors[-1], RequestRejected)
    assert driver.swarm.now_s - began_s < 10, "known to be useless, yet tried for long"
    assert not driver.banned, "healthy servers are avoided"
    for server in driver.servers:
        server.refusals = []
    assert await driver.step()


@scenario(*THREE, *THREE, *THREE)
async def replacement_cannot_be_reached(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(2)
    spares = [one for one in driver.servers if one.span == used.span and one is not used]
    choice = min(spares, key=lambda one: one.peer_id.to_base58())  # as ties are broken
    choice.kill()
    used.kill()
    assert await took_s(driver) < 1
    assert driver.server_at(2) not in {choice, used}
    assert [event["failed"][-1]["peer"] for event in driver.events] == [choice.peer_id.to_base58()]


@scenario(*THREE, *THREE)
async def killed_while_it_works(driver: Driver) -> None:
    assert await driver.step(10)
    assert await driver.step()
    for moment in (1, 2, 3, 4, 5, 6):
        driver.swarm.after(moment, lambda here: here.kill())
        assert await took_s(driver) < 0.4, "the end of a stream went unnoticed"
        for server in driver.servers:
            if not server.alive:
                server.restart()


@scenario(*THREE, *THREE)
async def hung_while_it_works(driver: Driver) -> None:
    assert await driver.step(10)
    for _ in range(3):
        assert await driver.step()
    driver.swarm.after(3, lambda here: here.hang())
    assert await took_s(driver) < 3, "a hung server took long to be found out"
    assert driver.events[-1]["cause"] == Cause.HUNG.value


@scenario(*THREE, *THREE)
async def stuck_but_answering_probes(driver: Driver) -> None:
    assert await driver.step(10)
    for _ in range(3):
        assert await driver.step()
    driver.swarm.after(3, lambda here: here.stick())
    assert await took_s(driver) < driver.settings.hard_floor_s + 2
    assert driver.events[-1]["cause"] == Cause.STUCK.value


@scenario(*THREE)
async def slow_is_not_dead(driver: Driver) -> None:
    assert await driver.step(10)
    for _ in range(3):
        assert await driver.step()
    driver.servers[1].slow_s = 15.0
    assert await driver.step()
    assert not driver.events


@scenario(*THREE)
async def nobody_steps_for_long(driver: Driver) -> None:
    assert await driver.step(10)
    for seconds in (200.0, 280.0, 400.0, 2000.0, 10_000.0):
        n_requests = sum(server.n_requests for server in driver.servers)
        await asyncio.sleep(seconds)
        assert sum(server.n_requests for server in driver.servers) == n_requests, (
            "an idle session keeps servers busy"
        )
        assert await driver.step()
        assert not driver.banned, "servers are avoided for their time limits"
    assert {event["cause"] for event in driver.events} <= {Cause.RENEWED.value}


@scenario(*THREE)
async def session_outlives_the_servers_limit(driver: Driver) -> None:
    for _ in range(25):
        assert await driver.step()
        await asyncio.sleep(100.0)
    assert {event["cause"] for event in driver.events} == {Cause.RENEWED.value}


@scenario(*THREE, (2, 4))
async def first_choice_has_no_free_cache(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(2)
    spare = next(one for one in driver.servers if one.span == used.span and one is not used)
    spare.busy = True
    used.kill()
    asyncio.get_running_loop().call_later(10.0, lambda: setattr(spare, "busy", False))
    assert await took_s(driver) < 20
    assert any(": busy (" in attempt for attempt in driver.events[-1]["attempts"])
    assert driver.server_at(2) is spare


@scenario(*THREE, *THREE)
async def server_has_moved_to_other_blocks(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(2)
    spare = next(one for one in driver.servers if one.span == used.span and one is not used)
    spare.move(driver.server_at(0).span)
    used.kill()
    asyncio.get_running_loop().call_later(20.0, used.restart)
    assert await took_s(driver) < 30
    assert driver.server_at(2) is used


@scenario(*THREE)
async def all_holders_are_gone_for_good(driver: Driver) -> None:
    assert await driver.step(10)
    driver.servers[1].kill()
    await asyncio.sleep(1.0)  # a repair is under way, which will fail
    began_s = driver.swarm.now_s
    assert not await driver.step()
    error = driver.errors[-1]
    assert isinstance(error, RecoveryFailed)
    assert "2:4" in str(error) or "[2, 3]" in str(error)
    assert driver.servers[1].peer_id.to_base58()[-6:] in str(error)
    assert driver.swarm.now_s - began_s <= driver.settings.recovery_s + 10
    await asyncio.sleep(RECORD_S)  # by now nobody announces these blocks
    began_s = driver.swarm.now_s
    assert not await driver.step()
    assert "no usable server for blocks [2, 3]" in str(driver.errors[-1])
    assert driver.swarm.now_s - began_s <= driver.settings.recovery_s + 10
    assert not driver.events, "a recovery that came to nothing was told as one"
    driver.servers[1].restart()
    assert await took_s(driver) < 10


@scenario(*THREE)
async def the_only_holder_returns_late(driver: Driver) -> None:
    assert await driver.step(10)
    for outage_s in (3.0, 20.0, 80.0):
        driver.servers[1].kill()
        asyncio.get_running_loop().call_later(outage_s, driver.servers[1].restart)
        late_s = BACKOFF_S + driver.settings.retry_max_s + 1
        assert await took_s(driver) < outage_s + late_s, "it was back, and not found"


@scenario(*THREE, *THREE)
async def two_spans_fail_at_once(driver: Driver) -> None:
    assert await driver.step(200)
    driver.server_at(2).kill()
    one_s = await took_s(driver)
    driver.swarm.heal()
    await asyncio.sleep(driver.settings.view_max_age_s + 1)
    for block in (0, 2, 4):
        driver.server_at(block).kill()
    three_s = await took_s(driver)
    assert three_s < 2.5 * one_s, "independent spans are replayed one after the other"


@scenario(*THREE)
async def all_spans_are_replayed_at_once(driver: Driver) -> None:
    assert await driver.step(300)
    assert await driver.step()
    await driver.rewind(1)
    replay_s = 300 / driver.settings.replay_tokens * COMPUTE_S
    assert await took_s(driver) < 2 * replay_s, "independent spans are replayed one after the other"


@scenario(*THREE, *THREE)
async def one_span_fails_again_and_again(driver: Driver) -> None:
    assert await driver.step(30)
    for _ in range(6):
        failed = driver.server_at(2)
        failed.kill()
        driver.swarm.after(4, lambda here: here.break_streams())
        assert await driver.step()
        failed.restart()


@scenario(*THREE, *THREE)
async def broken_between_steps_is_repaired_before_the_next(driver: Driver) -> None:
    assert await driver.step(30)
    driver.server_at(2).kill()
    await asyncio.sleep(1.0)
    assert await took_s(driver) < 0.05, "the step waited for a repair that could have been made before"
    assert len(driver.events) == 1


@scenario(*THREE, *THREE)
async def broken_after_its_part_of_a_step(driver: Driver) -> None:
    assert await driver.step(300)
    first = driver.server_at(0)
    driver.swarm.after(5, lambda _: first.kill())
    assert await driver.step()
    await asyncio.sleep(1.0)
    assert await took_s(driver) < 0.05, "the step waited for a repair that could have been made before"
    assert len(driver.events) == 1


@scenario(*THREE, *THREE)
async def repair_is_under_way_when_steps_are_taken_back(driver: Driver) -> None:
    assert await driver.step(200)
    assert await driver.step()
    for seconds in (0.0, 0.001, 0.004, 0.02, 0.3):
        driver.server_at(2).kill()
        await asyncio.sleep(seconds)
        await driver.rewind(1)
        assert await driver.step()
        for server in driver.servers:
            if not server.alive:
                server.restart()


@scenario(*THREE, *THREE)
async def repair_is_under_way_at_the_end(driver: Driver) -> None:
    assert await driver.step(200)
    for block in (0, 2, 4):
        driver.server_at(block).kill()
    await asyncio.sleep(0.02)


@scenario(*THREE, *THREE)
async def interrupted_while_dialling(driver: Driver) -> None:
    assert await driver.step(10)
    for moment in (1, 2):
        driver.server_at(2).kill()

        def plan(task: asyncio.Task, moment: int = moment) -> None:
            driver.swarm.after(moment, lambda _: task.cancel())

        await driver.step(interrupt=plan)
        driver.swarm.heal()
    for n_turns in range(12):  # one of them hits the moment in which all dials have ended
        await driver.rewind(0)

        def after_the_dial(task: asyncio.Task, n_turns: int = n_turns) -> None:
            driver.swarm.after(1, lambda _: in_turns(n_turns, task.cancel))

        await driver.step(5, interrupt=after_the_dial, again=False)


@scenario(*THREE, *THREE)
async def dht_is_silent_for_a_while(driver: Driver) -> None:
    assert await driver.step(10)
    driver.swarm.dht_answers = False
    await asyncio.sleep(driver.settings.view_max_age_s + 1)
    driver.server_at(2).kill()
    assert await took_s(driver) < driver.settings.read_view_s + 1, "an older view would have done"
    driver.server_at(2).kill()
    driver.swarm.dht_answers = True
    newcomer = driver.swarm.add(driver.servers[1].span)
    assert await took_s(driver) < 30, "the newcomer was not heard of"
    assert driver.server_at(2) is newcomer


@scenario(*THREE, *THREE)
async def no_server_takes_sessions_that_long(driver: Driver) -> None:
    for server in driver.servers:
        server.max_length = 100
    began_s = driver.swarm.now_s
    assert not await driver.step(10)
    assert isinstance(driver.errors[-1], RecoveryFailed)
    assert "Cannot allocate KV cache" in str(driver.errors[-1])
    assert driver.swarm.now_s - began_s < 1, "known to be useless, yet tried for long"


@scenario(*THREE, *THREE)
async def only_some_servers_take_sessions_that_long(driver: Driver) -> None:
    for server in driver.servers[:3]:
        server.max_length = 100
    assert await driver.step(10)
    assert {driver.server_at(block) for block in (0, 2, 4)} == set(driver.servers[3:])


@scenario(*THREE, (0, 6))
async def every_record_is_out_of_date(driver: Driver) -> None:
    assert await driver.step(10)
    for server in driver.servers:
        server.move(Span(0, 1))
    began_s = driver.swarm.now_s
    assert not await driver.step()
    assert isinstance(driver.errors[-1], RecoveryFailed)
    assert driver.swarm.now_s - began_s <= driver.settings.recovery_s + 10


@scenario(*THREE, *THREE, *THREE, *THREE)
async def every_server_has_an_error_of_its_own(driver: Driver) -> None:
    assert await driver.step(10)
    for server in driver.servers:
        server.refusals = [f"error {index} of {server.name}" for index in range(100)]
    assert not await driver.step()
    error = driver.errors[-1]
    assert isinstance(error, RecoveryFailed)
    assert len(error.attempts) <= driver.settings.attempts
    for server in driver.servers:
        server.refusals = []
    await asyncio.sleep(driver.settings.ban_max_s)
    assert await driver.step()


@scenario(*THREE)
async def only_holder_is_busy_for_a_while(driver: Driver) -> None:
    driver.servers[1].busy = True
    asyncio.get_running_loop().call_later(60.0, lambda: setattr(driver.servers[1], "busy", False))
    assert await took_s(driver) < 60 + driver.settings.busy_s + driver.settings.alloc_s + 5


@scenario(*THREE, *THREE)
async def closed_during_a_step(driver: Driver) -> None:
    assert await driver.step(10)
    driver.swarm.after(2, lambda here: here.kill())
    step = asyncio.create_task(driver.step(2))
    await asyncio.sleep(COMPUTE_S / 2)
    await driver.flow.close()  # waits for the step, its recovery included
    assert step.done()
    assert await step


@scenario(*THREE)
async def interrupted_at_the_moment_a_view_arrives(driver: Driver) -> None:
    assert await driver.step(10)
    for n_turns in range(8):
        await driver.rewind(0)
        await asyncio.sleep(driver.settings.view_max_age_s + 1)

        def plan(task: asyncio.Task, n_turns: int = n_turns) -> None:
            asyncio.get_running_loop().call_later(DHT_S, in_turns, n_turns, task.cancel)

        assert not await driver.step(10, interrupt=plan, again=False), "the interrupt was lost"
    assert await driver.step(10)


@scenario((0, 3), (3, 6), (3, 6), batch=3, standby_tokens=2)
async def standby_takes_over_in_a_beam_search(driver: Driver) -> None:
    assert await driver.step(10, prompt_tokens=3)
    for rows in ([2, 0, 0], [1, 2, 0], [0, 0, 1], [2, 1, 0]):
        assert await driver.step(rows=rows, prompt_tokens=1)
        await asyncio.sleep(1.0)
    # the standby lags behind by a step that moved rows, and the next one moves them again
    driver.swarm.after(3, lambda here: here.kill())
    assert await driver.step(rows=[1, 1, 2])
    assert driver.events[-1]["from_standby"]
    assert await driver.step(rows=[2, 0, 1])


@scenario((0, 3), (3, 6), (3, 6), standby_tokens=1)
async def standby_of_steps_that_are_taken_back(driver: Driver) -> None:
    for _ in range(4):
        assert await driver.step(3)
        await asyncio.sleep(1.0)
    await driver.rewind(2)
    assert await driver.step(2)
    await asyncio.sleep(1.0)
    driver.server_at(3).kill()
    assert await driver.step()
    assert await driver.step()


@scenario((0, 3), (3, 6), (3, 6), (3, 6), standby_tokens=2)
async def standby_hangs_while_it_is_fed(driver: Driver) -> None:
    assert await driver.step(10)
    await asyncio.sleep(1.0)
    assert await driver.step()
    used = driver.server_at(3)
    spare = next(
        one for one in driver.servers if one is not used and one.n_requests and one.span == used.span
    )
    spare.hang()
    assert await driver.step()  # from here on it is fed, and never answers
    used.kill()
    assert await took_s(driver) < 2 * driver.settings.suspect_floor_s
    assert await driver.step()
    assert spare.name in driver.banned


@scenario((0, 3), (3, 6), (3, 6), (3, 6), standby_tokens=2)
async def standby_is_stuck_while_it_is_fed(driver: Driver) -> None:
    assert await driver.step(10)
    await asyncio.sleep(1.0)
    assert await driver.step()
    used = driver.server_at(3)
    spare = next(
        one for one in driver.servers if one is not used and one.n_requests and one.span == used.span
    )
    spare.stick()
    assert await driver.step()  # from here on it is fed, and answers nothing but probes
    used.kill()
    assert await took_s(driver) < 2 * driver.settings.suspect_floor_s
    assert await driver.step()


@scenario(*THREE, *THREE)
async def another_session_knows_who_is_dead(driver: Driver) -> None:
    other = driver.accompany()
    assert await driver.step(10)
    dead = driver.server_at(2)
    dead.kill()
    assert await driver.step()
    assert driver.events
    n_moments = driver.swarm.n_moments
    assert await other.step(5)
    assert driver.swarm.n_moments - n_moments == 3 * 3, "it dialled more than the three that live"
    assert not other.events
    assert dead.name in other.banned


@scenario(*THREE, *THREE, hedge_s=0.3)
async def one_death_that_two_sessions_meet_is_one_failure(driver: Driver) -> None:
    other = driver.accompany()
    for one in (driver, other):
        assert await one.step(10)
    dead = driver.server_at(2)
    assert other.server_at(2) is dead
    dead.kill()
    for one in (driver, other):
        assert await one.step()
    dead.restart()  # and announces itself: a single failure is forgiven
    for one in (driver, other):
        assert dead.name not in one.banned


@scenario((0, 6))
async def the_only_holder_is_back_before_the_client_hears_of_it(driver: Driver) -> None:
    other = driver.accompany()
    assert await driver.step(10)
    driver.swarm.dht_answers = False  # as long as one of its nodes hangs
    only = driver.server_at(0)
    only.kill()
    await asyncio.sleep(0.1)
    only.restart()
    assert await took_s(other) < 0.5, "a session that has met no failure waited for the DHT"


@scenario(*THREE, *THREE)
async def a_session_keeps_to_what_it_has_learnt_itself(driver: Driver) -> None:
    """That a server serves another session does not make it good for one that it refuses."""
    other = driver.accompany()
    assert await driver.step(10)
    assert await other.step(10)
    used = driver.server_at(2)
    assert other.server_at(2) is used
    used.refusals.append("something went wrong in the block")
    assert await driver.step()
    assert used.name in driver.banned
    assert used.name not in other.banned
    assert await other.step()
    assert used.name in driver.banned


@scenario(*THREE, *THREE, (2, 4), hedge_factor=1.0)
async def replacement_hangs_while_another_could_serve(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(2)
    spares = [one for one in driver.servers if one.span == used.span and one is not used]
    min(
        spares, key=lambda one: one.peer_id.to_base58()
    ).hang()  # of equal servers the one that is asked first
    used.kill()
    assert driver.settings.hedge_s < await took_s(driver) < driver.settings.hedge_s + 0.5


@scenario((0, 3), (3, 6), (3, 6), hedge_factor=1.0)
async def the_only_replacement_is_slow_to_be_reached(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(3)
    spare = next(one for one in driver.servers if one.span == used.span and one is not used)
    spare.hang()
    asyncio.get_running_loop().call_later(2 * driver.settings.hedge_s, spare.resume)
    used.kill()
    assert await took_s(driver) < 2 * driver.settings.hedge_s + 0.5, (
        "it did not wait for the only one there is"
    )


@scenario((0, 6), (0, 6))
async def a_pause_teaches_no_patience_with_a_hung_server(driver: Driver) -> None:
    for _ in range(3):
        assert await driver.step()
    driver.server_at(0).slow_s = 15.0
    assert await driver.step(2)
    driver.server_at(0).hang()
    assert await took_s(driver, n_tokens=3) < 5.0


@scenario((0, 6), (0, 6))
async def a_new_session_meets_a_hung_server(driver: Driver) -> None:
    """It has seen no reply yet, but other sessions of its client have."""
    other = driver.accompany()
    for _ in range(3):
        assert await driver.step()
    driver.swarm.after(2, lambda here: here.hang())  # it takes the stream, and the request
    assert await took_s(other) < driver.settings.suspect_floor_s + driver.settings.probe_s + 0.5


@scenario((0, 6), (0, 6))
async def hung_before_the_first_single_step(driver: Driver) -> None:
    assert await driver.step(10)
    driver.server_at(0).hang()
    assert await took_s(driver) < driver.settings.suspect_floor_s + driver.settings.probe_s + 0.5


@scenario((0, 3), (3, 6), (3, 6), hedge_factor=1.0)
async def another_is_back_while_a_dial_hangs(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(3)
    spare = next(one for one in driver.servers if one.span == used.span and one is not used)
    spare.hang()
    used.kill()
    asyncio.get_running_loop().call_later(1.5 * driver.settings.hedge_s, used.restart)
    # a view is looked at four times a second and read once a second at most
    assert await took_s(driver) < 1.5 * driver.settings.hedge_s + driver.settings.probe_s + 0.5


@scenario((0, 6), (0, 6))
async def a_long_prefill_begins_at_a_hung_server(driver: Driver) -> None:
    """Whether it is there does not depend on how much it was sent."""
    other = driver.accompany()
    for _ in range(3):
        assert await driver.step()
    driver.swarm.after(2, lambda here: here.hang())
    assert await took_s(other, n_tokens=300) < driver.settings.suspect_floor_s + driver.settings.probe_s + 0.5


@scenario((0, 6), (0, 6))
async def a_long_prefill_begins_at_a_slow_server(driver: Driver) -> None:
    other = driver.accompany()
    for _ in range(3):
        assert await driver.step()
    for server in driver.servers:
        server.slow_s = 15.0
    assert 15.0 < await took_s(other, n_tokens=300) < 16.0
    assert not other.events, "it answered probes, and was given up"


@scenario((0, 3), *[(3, 6)] * 20, hedge_factor=1.0)
async def all_but_one_of_many_hang_at_once(driver: Driver) -> None:
    assert await driver.step(10)
    used = driver.server_at(3)
    others = [one for one in driver.servers if one.span == used.span and one is not used]
    alive = max(
        others, key=lambda one: one.peer_id.to_base58()
    )  # of equal servers the one that is asked last
    for server in (used, *others):
        if server is not alive:
            server.hang()
    assert await took_s(driver) < len(others) * driver.settings.probe_s + 2.0
    assert driver.server_at(3) is alive


@scenario((0, 3), (3, 6))
async def the_connection_to_the_only_holder_breaks(driver: Driver) -> None:
    """It is asked again when its ban is over, not at the next of ever rarer looks."""
    assert await driver.step(10)
    holder = driver.server_at(3)
    holder.break_streams()
    assert await took_s(driver) < driver.settings.ban_s + 0.5


@scenario((0, 3), (3, 6))
async def the_only_holder_hangs_for_a_while(driver: Driver) -> None:
    """A dial that waits finds it at once when it goes on; to give up means to wait for the end of a longer ban."""
    assert await driver.step(10)
    holder = driver.server_at(3)
    holder.break_streams()
    holder.hang()
    asyncio.get_running_loop().call_later(12.0, holder.resume)
    assert 12.0 < await took_s(driver) < 12.5
