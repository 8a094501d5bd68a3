"""Drives a Flow over a fake swarm beside a reference that never fails, and compares after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from swarmlab.bridge.clients import calm
from swarmlab.bridge.inference import chain, flow, rebuild, router, standby, stream, views, watch
from swarmlab.bridge.inference.flow import StepInput
from swarmlab.recovery.failure import RecoveryFailed, RequestRejected
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import Span
from tests.bridge.fake_swarm import HIDDEN, FakeSwarm, Manager, Reference, Server, fake_router
from tests.bridge.virtual_time import clock_of_the_loop, run

SETTINGS = RecoverySettings(replay_tokens=48)
MAX_LENGTH = 600
# what a step may take beyond recovery_s, which begins with the first failure that is known and ends with the beginning
# of the last attempt: two waits up to the hard limit (longer for what a replay's tokens may take, three times doubled),
# a view, a dial
OVERTIME_S = 2 * (SETTINGS.hard_max_s + 8 * SETTINGS.token_s * SETTINGS.replay_tokens) + 30.0


class Driver:
    """One session and its twin.

    :param swarm: in which faults are made directly
    :param manager: of the client whose session it is
    """

    def __init__(
        self, swarm: FakeSwarm, batch: int, settings: RecoverySettings, *, push: bool, manager: Any = None
    ) -> None:
        self.swarm, self.batch, self.settings = swarm, batch, settings
        self.manager = manager or Manager(swarm)
        self.events: list[dict[str, Any]] = []
        self.companion: Driver | None = None  # another session of the same client
        session = chain.Session(fake_router(swarm, settings, self.manager), settings, MAX_LENGTH)
        session.push_outputs = push
        self.flow = flow.Flow(session, self.events.append)
        self.reference = Reference(swarm.n_blocks, batch)
        self.errors: list[Exception] = []
        self._random = np.random.default_rng(0)

    @property
    def servers(self) -> list[Server]:
        return self.swarm.servers

    def server_at(self, block: int) -> Server:
        """The server that runs ``block`` for the session now."""
        for span, peer in self.flow.spans:
            if block in span and peer is not None:
                return next(one for one in self.servers if one.peer_id.to_base58() == peer)
        raise LookupError(f"block {block} is not served: {self.flow.spans}")

    @property
    def banned(self) -> set[str]:
        """Names of the servers that the session avoids now."""
        blame = self.flow.session.router._blame
        excluded = blame.excluded(self.swarm.now_s, self.swarm.view())
        return {one.name for one in self.servers if one.peer_id.to_base58() in excluded}

    async def step(
        self,
        n_tokens: int = 1,
        *,
        rows: list[int] | None = None,
        prompt_tokens: int = 0,
        shared_prompt: bool = False,
        interrupt: Callable[[asyncio.Task], Any] | None = None,
        again: bool = True,
    ) -> bool:
        """Take a step, repeat it if it was interrupted, and compare; whether it was completed.

        :param rows: hypo_ids
        :param interrupt: given the task of the step, to have it cancelled some time
        """
        n_tokens = min(n_tokens, MAX_LENGTH - self.reference.position)
        if n_tokens == 0:
            return True
        prompts = None
        if prompt_tokens:
            shape = (
                self.swarm.n_blocks,
                1 if shared_prompt else self.batch,
                min(prompt_tokens, n_tokens),
                HIDDEN,
            )
            prompts = self._random.random(shape)
        inputs = self._random.random((self.batch, n_tokens, HIDDEN))
        hypo_ids = None if rows is None else np.array([row % self.batch for row in rows][: self.batch])
        expected, states = self.reference.preview(inputs, prompts, hypo_ids)
        step = StepInput(
            torch.from_numpy(inputs), None if prompts is None else torch.from_numpy(prompts), hypo_ids
        )
        outputs = await self._bounded(step, interrupt)
        if outputs is None and interrupt is not None and again:
            outputs = await self._bounded(step, None)
        if outputs is not None:
            np.testing.assert_array_equal(outputs.numpy(), expected, "a completed step is wrong")
            self.reference.commit(n_tokens, states)
        self.check_position()
        return outputs is not None

    async def _bounded(
        self, step: StepInput, interrupt: Callable[[asyncio.Task], Any] | None
    ) -> torch.Tensor | None:
        began_s = self.swarm.now_s
        task = asyncio.create_task(self.flow.step(step))
        if interrupt is not None:
            interrupt(task)
        try:
            return await task
        except (RecoveryFailed, RequestRejected) as error:
            self.errors.append(error)
        except asyncio.CancelledError:
            assert interrupt is not None, "a step was cancelled by nobody"
        finally:
            took_s = self.swarm.now_s - began_s
            assert took_s <= self.settings.recovery_s + OVERTIME_S, f"a step took {took_s:.0f} s"
        return None

    async def rewind(self, n_steps: int) -> None:
        n_steps = min(n_steps, self.reference.n_steps)
        await self.flow.rewind(self.reference.position_of(n_steps))
        self.reference.rewind(n_steps)
        self.check_position()

    def check_position(self) -> None:
        assert self.flow.session.log.position == self.reference.position, (
            "the position is not that of the steps"
        )

    def accompany(self) -> Driver:
        """Another session of the same client."""
        self.companion = Driver(self.swarm, 1, self.settings, push=False, manager=self.manager)
        return self.companion

    async def heal_and_go_on(self) -> None:
        """Once everybody is back and bans are over, the next steps must succeed."""
        self.swarm.heal()
        await asyncio.sleep(self.settings.ban_max_s + 1)
        for driver in (self, self.companion):
            for _ in range(2):
                assert driver is None or await driver.step(), f"healed, yet: {driver.errors[-1]}"

    async def close(self) -> None:
        """End the session; nothing may be left behind."""
        if self.companion is not None:
            await self.companion.flow.close()
        began_s = self.swarm.now_s
        await self.flow.close()
        assert self.swarm.now_s - began_s <= self.settings.close_s + 0.01, "closing took too long"
        # goodbyes in the background, and servers that notice; a probe or a dial may have to run out of time
        await asyncio.sleep(self.settings.connect_s + self.settings.close_s)
        assert self.swarm.n_open_streams == 0, f"{self.swarm.n_open_streams} streams are still open"
        assert not rebuild._background, "tasks are left"
        ours = [task for task in asyncio.all_tasks() if "swarmlab/bridge/" in _home(task)]
        assert not ours, f"tasks are left: {ours}"


def _home(task: asyncio.Task) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else code.co_filename


def drive(
    play: Callable[[Driver], Coroutine[Any, Any, None]],
    *spans: tuple[int, int],
    n_blocks: int = 4,
    batch: int = 1,
    push: bool = False,
    **settings: Any,
) -> Driver:
    """Play a script in virtual time on servers that hold ``spans``, then close the session."""

    async def main() -> Driver:
        swarm = FakeSwarm(n_blocks, [Span(*span) for span in spans])
        driver = Driver(swarm, batch, replace(SETTINGS, **settings), push=push)
        await play(driver)
        await driver.close()
        return driver

    with clock_of_the_loop(calm, chain, flow, rebuild, router, standby, stream, views, watch):
        return run(main())
