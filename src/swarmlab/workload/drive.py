"""Follows one client process from its first event to its last, within a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

from swarmlab.channel import Channel, ChannelClosed, Message


class End(StrEnum):
    """How a client ended."""

    DONE = "done"
    EXCEPTION = "exception"  # it said so, and what
    HANG = "hang"  # not done at the deadline
    LOST = "lost"  # the process ended without a word


def follow(
    channel: Channel,
    deadline_s: float,
    on_event: Callable[[Message], None],
    at_fault_point: Callable[[Message], None],
) -> End:
    """Receive events until the client is done, dead, or late.

    :param deadline_s: seconds that the client may take in all; what happens at fault points does not count
    :param on_event: called with every event but fault points
    :param at_fault_point: called where the client waits; it goes on when this returns
    """
    until_s = time.monotonic() + deadline_s
    raised = False
    while True:
        try:
            message = channel.recv(max(until_s - time.monotonic(), 0.0))
        except TimeoutError:
            return End.HANG
        except ChannelClosed:
            return End.EXCEPTION if raised else End.LOST
        if message["event"] == "at":
            arrived_s = time.monotonic()
            at_fault_point(message)
            until_s += time.monotonic() - arrived_s
            with suppress(ChannelClosed):  # it died while it waited: the next read says so
                channel.send({"go": True})
            continue
        on_event(message)
        raised = raised or message["event"] == "error"
        if message["event"] == "done":
            return End.EXCEPTION if raised else End.DONE


def step_row(message: Message, retries: int) -> dict[str, Any]:
    """A step event as a row of the history.

    :param retries: failed attempts that the client told of since the step before
    """
    names = ("token", "phase", "seconds", "token_ids")
    return {"session": 0, **{name: message[name] for name in names}, "retries": retries}
