"""Random scripts for a session: a topology, and what happens to it, as values that Hypothesis can shrink."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from swarmlab.types import Span
from tests.bridge.driver import Driver
from tests.bridge.fake_swarm import Server

# error texts with which a healthy server may turn a request down
TEXTS = (
    "something went wrong in the block",
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "",
    "Remote peer does not serve model.1",
    "Could not allocate 4096 (timeout=2.0)",
)
FAULTS = (
    *("kill", "hang", "stick", "break", "slow", "refuse", "busy"),
    *("move", "restart", "restart_elsewhere", "resume"),
)


@dataclass(frozen=True)
class Fault:
    """One fault at one server.

    :param server: index into the servers, modulo their number; None for the one at which the moment takes place
    :param moment: None for now, between two steps; else the n-th moment from now
    """

    kind: str
    server: int | None
    moment: int | None
    span: tuple[int, int]
    number: int

    async def play(self, driver: Driver) -> None:
        chosen = None if self.server is None else driver.servers[self.server % len(driver.servers)]
        if self.moment is None:
            self._do(driver, chosen or driver.servers[0])
        else:
            driver.swarm.after(self.moment, lambda here: self._do(driver, chosen or here))

    def _do(self, driver: Driver, server: Server) -> None:
        start = self.span[0] % driver.swarm.n_blocks
        span = Span(start, min(start + self.span[1], driver.swarm.n_blocks))
        kinds: dict[str, Any] = {
            "kill": server.kill,
            "hang": server.hang,
            "stick": server.stick,
            "break": server.break_streams,
            "slow": lambda: setattr(server, "slow_s", (0.3, 3.0, 15.0)[self.number % 3]),
            "refuse": lambda: server.refusals.append(TEXTS[self.number % len(TEXTS)]),
            "busy": lambda: setattr(server, "busy", not server.busy),
            "move": lambda: server.move(span),
            "restart": server.restart,
            "restart_elsewhere": lambda: server.restart(span),
            "resume": server.resume,
        }
        kinds[self.kind]()


@dataclass(frozen=True)
class Step:
    """One step; ``interrupt`` is the moment (counted from its start) at which it is cancelled."""

    n_tokens: int
    rows: tuple[int, ...] | None
    prompt_tokens: int
    shared_prompt: bool
    interrupt: int | None
    again: bool

    async def play(self, driver: Driver) -> None:
        moment = self.interrupt

        def plan(task: asyncio.Task) -> None:
            assert moment is not None
            if moment == 0:
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                driver.swarm.after(moment, lambda _: task.cancel())

        await driver.step(
            self.n_tokens,
            rows=None if self.rows is None else list(self.rows),
            prompt_tokens=self.prompt_tokens,
            shared_prompt=self.shared_prompt,
            interrupt=None if moment is None else plan,
            again=self.again,
        )


@dataclass(frozen=True)
class Wait:
    seconds: float

    async def play(self, driver: Driver) -> None:  # noqa: ARG002
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Rewind:
    """Back to before step ``step``, modulo the steps there are."""

    step: int

    async def play(self, driver: Driver) -> None:
        await driver.rewind(self.step % (driver.reference.n_steps + 1))


@dataclass(frozen=True)
class AllGone:
    """Every server dies; one returns after a while."""

    seconds: float
    back: int

    async def play(self, driver: Driver) -> None:
        for server in driver.servers:
            server.kill()
        await asyncio.sleep(self.seconds)
        asyncio.get_running_loop().call_later(
            self.seconds, driver.servers[self.back % len(driver.servers)].restart
        )


@dataclass(frozen=True)
class DhtSilent:
    async def play(self, driver: Driver) -> None:
        driver.swarm.dht_answers = not driver.swarm.dht_answers


@dataclass(frozen=True)
class Heal:
    async def play(self, driver: Driver) -> None:
        driver.swarm.heal()


Op = Fault | Step | Wait | Rewind | AllGone | DhtSilent | Heal


@dataclass(frozen=True)
class Script:
    """A whole session."""

    n_blocks: int
    batch: int
    spans: tuple[tuple[int, int], ...]
    replay_tokens: int
    push: bool
    push_delays_s: tuple[float, ...]
    ops: tuple[Op, ...] = field(default=())

    async def play(self, driver: Driver) -> None:
        driver.swarm.push_delays_s = list(self.push_delays_s)
        for op in self.ops:
            beside = driver.companion
            await asyncio.gather(op.play(driver), *([] if beside is None else [beside.step(2)]))
        # servers may have moved anywhere; somebody must hold every block for the session to go on
        for start in range(0, self.n_blocks, 3):
            driver.swarm.add(Span(start, min(start + 3, self.n_blocks)))
        await driver.heal_and_go_on()


_small = st.integers(0, 7)
_faults = st.builds(
    Fault,
    kind=st.sampled_from(FAULTS),
    server=st.none() | _small,
    moment=st.none() | st.integers(1, 12),
    span=st.tuples(_small, st.integers(1, 6)),
    number=_small,
)
_steps = st.builds(
    Step,
    n_tokens=st.integers(1, 3) | st.integers(1, 40),
    rows=st.none() | st.tuples(_small, _small, _small, _small),
    prompt_tokens=st.just(0) | st.integers(0, 5),
    shared_prompt=st.booleans(),
    interrupt=st.sampled_from((None, None, None, *range(13))),
    again=st.booleans(),
)
_others = st.one_of(
    st.builds(Wait, st.sampled_from((0.005, 0.1, 2.0, 30.0, 100.0, 280.0, 400.0, 1900.0))),
    st.builds(Rewind, _small),
    st.builds(AllGone, st.sampled_from((0.0, 5.0, 40.0)), _small),
    st.builds(DhtSilent),
)
# what happens before a step: mostly a fault or two in the course of it
_before = st.one_of(
    st.just(()),
    st.tuples(_faults),
    st.tuples(_faults),
    st.tuples(_faults, _faults),
    st.tuples(_others),
    st.tuples(_faults, _others),
)


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[Op, ...]:
    """What fails is mostly back before the next step, or soon nobody would be left."""
    after = draw(st.sampled_from(((), (Heal(),), (Heal(),), (Heal(), Wait(31.0)))))
    return (*draw(_before), draw(_steps), *after)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Overlapping servers of different widths that hold every block at least twice, and up to 12 steps."""
    n_blocks = draw(st.integers(2, 6))
    spans = [*draw(_covers(n_blocks)), *draw(_covers(n_blocks))]
    rounds = draw(st.lists(_rounds(), min_size=2, max_size=12))
    first = Step(draw(st.integers(1, 20)), None, 0, shared_prompt=False, interrupt=None, again=False)
    return Script(
        n_blocks=n_blocks,
        batch=draw(st.integers(1, 4)),
        spans=tuple(spans),
        replay_tokens=draw(st.sampled_from((7, 20, 48, 1024))),
        push=draw(st.booleans()),
        push_delays_s=tuple(draw(st.lists(st.sampled_from((0.0, 0.005, 0.03, 2.0)), min_size=1, max_size=3))),
        ops=(first, *(op for one in rounds for op in one)),
    )


@st.composite
def _covers(draw: st.DrawFn, n_blocks: int) -> list[tuple[int, int]]:
    """Spans that together hold every block; each may begin a little before the one before it ends."""
    spans, covered = [], 0
    while covered < n_blocks:
        start = draw(st.integers(max(0, covered - 1), covered))
        covered = draw(st.integers(covered + 1, n_blocks))
        spans.append((start, covered))
    return spans
