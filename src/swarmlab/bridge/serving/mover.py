"""Carries out one move of a server, action by action, and goes back to where it was if it must not or cannot go on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from swarmlab.bridge.events import EventLog
from swarmlab.bridge.serving.announcer import Statement
from swarmlab.bridge.serving.gates import Gates
from swarmlab.bridge.serving.loads import Loads, Stopped
from swarmlab.bridge.serving.reload_account import (
    CANCELLED,
    FAILED,
    MOVED,
    ROLLED_BACK,
    LoadMeter,
    ReloadAccount,
)
from swarmlab.placement.reload_plan import (
    Action,
    Announce,
    Check,
    Drain,
    Drop,
    Load,
    contiguous,
    plan_mend,
)
from swarmlab.types import Intent, Span

POLL_S = 0.05
CHECK_HOLDS_S = 5.0  # a process that was stopped for longer has to look again before it drops anything


class Blocks(Protocol):
    """What holds the blocks (``swarmlab.bridge.container.Shelf``)."""

    @property
    def blocks(self) -> frozenset[int]: ...

    def add(self, modules: Mapping[int, Any]) -> None: ...

    def remove(self, blocks: Iterable[int]) -> None: ...

    def sessions_on(self, blocks: Iterable[int]) -> int: ...


@dataclass(frozen=True)
class Tools:
    """What a move needs of its server.

    :param say: tells the swarm; False if it took nothing
    :param clock: seconds on the clock of intents, the DHT's
    :param visible_s: what an announcement takes to be seen by all, clocks' differences included
    :param drain_s: how long open sessions get to finish before their blocks are dropped
    :param load_deadline_s: a block that takes longer to load counts as failed
    :param stopping: set when the server is to end
    """

    shelf: Blocks
    say: Callable[[Statement], bool]
    loads: Loads
    clock: Callable[[], float]
    gates: Gates
    events: EventLog
    meter: LoadMeter
    visible_s: float
    drain_s: float
    load_deadline_s: float
    stopping: threading.Event


class GaveUp(Exception):
    """The move is not right any more; the text says why."""


@dataclass(frozen=True)
class Result:
    """How a move ended.

    :param at: what the server holds now; a part of it is missing if ``outcome`` is ``failed``
    """

    outcome: str
    at: Span
    reason: str


class Mover:
    """One move. ``objection`` is asked before anything is given up, with the blocks that would be.

    :param account: counts what it costs
    :param announced_at_s: when the move was announced, if it was before
    """

    def __init__(
        self,
        tools: Tools,
        account: ReloadAccount,
        objection: Callable[[Sequence[int]], str | None],
        announced_at_s: float | None = None,
    ) -> None:
        self._tools, self._account, self._objection = tools, account, objection
        self._since_s = tools.clock() if announced_at_s is None else announced_at_s
        self._home = account.old or account.new  # the last whole span that was all it held
        self._begun = False
        self._going_back = False
        self._checked_s = -math.inf

    def run(self, plan: Sequence[Action]) -> Result:
        """Carry the plan out; whatever happens, the server then serves all it can."""
        new = self._account.new
        try:
            self._carry_out(plan)
            self._tools.gates.pass_through("swapped")
            return Result(MOVED, new, "")
        except GaveUp as why:
            outcome, reason = CANCELLED, str(why)
        except Stopped as why:
            # there will be nobody to serve, and so no way back to go
            return Result(CANCELLED, self._home, str(why))
        except Exception as error:  # noqa: BLE001 - a disk, a file or the memory failed; the server must serve on
            outcome, reason = ROLLED_BACK, f"{type(error).__name__}: {error}"
        back_to = self._home
        self._tools.events.log("warning", f"move to {new} {outcome}: {reason}; back to {back_to}")
        if self.mend(back_to):
            return Result(outcome, back_to, reason)
        return Result(FAILED, back_to, reason)

    def mend(self, home: Span) -> bool:
        """Hold and serve ``home`` again, or as much of it as can be; False if a part is missing."""
        self._going_back = True
        try:
            self._carry_out(plan_mend(self._tools.shelf.blocks, home))
            return True
        except Stopped:
            return False
        except Exception as error:  # noqa: BLE001 - as above
            held = contiguous(self._tools.shelf.blocks & set(home))
            self._tools.events.log(
                "error", f"{home} cannot be held, {held} is served: {type(error).__name__}: {error}"
            )
            self._announce(Announce(held, home))
            return False

    def _carry_out(self, plan: Sequence[Action]) -> None:
        for place, action in enumerate(plan):
            match action:
                case Announce():
                    self._announce(action)
                case Load(block):
                    self._load(block)
                    if not any(isinstance(later, Load) for later in plan[place + 1 :]):
                        self._tools.gates.pass_through("loaded")
                case Check(leaving):
                    self._check(leaving)
                case Drain(blocks):
                    self._drain(blocks)
                case Drop(blocks):
                    self._drop(blocks)
            self._note_whole()

    def _note_whole(self) -> None:
        held = self._tools.shelf.blocks
        if len(held) == self._account.new.length:
            self._home = contiguous(held) or self._home

    def _announce(self, action: Announce) -> None:
        intent = Intent(action.wants, self._since_s) if action.wants else None
        first, self._begun = not self._begun, True
        with self._account.timed("intent" if first else "announce"):
            told = self._tools.say(Statement(action.online, intent))
        self._account.serves(action.online)
        if first:
            self._tools.gates.pass_through("intent_announced")
            if not told and not self._going_back:
                raise GaveUp("the DHT took no record of the intent: another may be going there too")

    def _load(self, block: int) -> None:
        self._tools.gates.pass_through(f"loading:{block}")
        self._tools.shelf.add({block: load_counted(self._tools, self._account, block)})

    def _check(self, leaving: tuple[int, ...]) -> None:
        tools = self._tools
        with self._account.timed("check"):
            # of two servers that announce at once, each must see the other's before it believes it is alone
            tools.stopping.wait(max(0.0, self._since_s + tools.visible_s - tools.clock()))
            why = self._objection(leaving)
        if why:
            raise GaveUp(why)
        self._checked_s = time.monotonic()

    def _drain(self, blocks: tuple[int, ...]) -> None:
        tools, until = self._tools, time.monotonic() + self._tools.drain_s
        sessions = left = tools.shelf.sessions_on(blocks)
        with self._account.timed("drain"):
            while left and time.monotonic() < until and not tools.stopping.wait(POLL_S):
                left = tools.shelf.sessions_on(blocks)
        self._account.drained(sessions, left)

    def _drop(self, blocks: tuple[int, ...]) -> None:
        if not self._going_back and time.monotonic() - self._checked_s > CHECK_HOLDS_S:
            self._check(blocks)
        with self._account.timed("drop"):
            self._tools.shelf.remove(blocks)
        self._tools.gates.pass_through("dropped")


def load_counted(tools: Tools, account: ReloadAccount, block: int) -> torch.nn.Module:
    """The module of a block; what loading it took goes into the account and into the next decision's costs.

    :raises Exception: see :meth:`Loads.load`
    """
    started = time.monotonic()
    with account.timed("load"):
        loaded = tools.loads.load(block, tools.load_deadline_s)
    tools.meter.add(time.monotonic() - started)
    account.loaded(block, loaded)
    return loaded.module
