"""PURE: which faults a scenario wants, and when each is due; checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeGuard

from swarmlab.errors import BadInput
from swarmlab.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    ToSpan = Callable[[int, int], Span]


class Fault(StrEnum):
    """What can be done to a server."""

    KILL = "kill"  # SIGKILL: the machine dies
    STOP = "stop"  # SIGSTOP: the machine hangs, its connections stay open
    CONT = "cont"  # SIGCONT: a hung machine goes on
    RESTART = "restart"  # a dead server comes back with its identity
    LEAVE = "leave"  # SIGTERM: the server says goodbye and ends
    PAUSE = "pause"  # SIGSTOP, and SIGCONT after ``seconds``: the machine is slow for a while
    CUT = "cut"  # its network daemon is killed, everything else of it stopped: off the network, and off the processor
    MOVE = "move"  # the server drops its blocks and comes back with others, as after a rebalancing


class Role(StrEnum):
    """A server by its place in the chain that the client really uses."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


KILLED = "killed"  # as a target: the server that was taken away last
SPARE = "spare"  # as a target: a server that holds the blocks of the last span, but is not used

KEYS = {"fault", "target", "before_token", "at_span", "request", "after_s", "seconds", "to"}


@dataclass(frozen=True)
class FaultSpec:
    """One fault of a scenario: what, to whom, and when.

    :param target: a role, the name of a server, ``killed``, or ``spare``
    :param before_token: index from 0 of the step that finds the fault there; 0 is the (first piece of the) prompt
    :param at_span: None for before the step as a whole, else before the client asks this span of its chain
    :param request: with ``at_span``: before which of the step's requests to it, from 1 (a replay is one more)
    :param after_s: the client goes on at once and the fault happens this much later; None makes the client wait
    :param seconds: how long a pause lasts
    :param to: the blocks a moved server comes back with, start and end
    """

    fault: Fault
    target: str
    before_token: int
    at_span: str | None = None
    request: int = 1
    after_s: float | None = None
    seconds: float | None = None
    to: Span | None = None


def parse_faults(
    entries: Iterable[Mapping[str, Any]], servers: Sequence[str], n_tokens: int, to_span: ToSpan = Span
) -> tuple[FaultSpec, ...]:
    """Turn the ``faults`` of a scenario file into specs.

    :param servers: names of the scenario's servers
    :param n_tokens: steps that the workload makes; a fault due after them would never happen
    :param to_span: makes a span of the start and end of a file
    :raises BadInput: naming the entry and what it may hold
    """
    return tuple(
        _parse(entry, f"faults[{index}]", servers, n_tokens, to_span) for index, entry in enumerate(entries)
    )


def _parse(
    entry: Mapping[str, Any], where: str, servers: Sequence[str], n_tokens: int, to_span: ToSpan
) -> FaultSpec:
    if not isinstance(entry, Mapping):
        raise BadInput(where, entry, f"keys {', '.join(sorted(KEYS))}")
    unknown = set(entry) - KEYS
    if unknown:
        raise BadInput(f"{where}.{min(map(str, unknown))}", "a key", ", ".join(sorted(KEYS)))
    faults = [fault.value for fault in Fault]
    if entry.get("fault") not in faults:
        raise BadInput(f"{where}.fault", entry.get("fault"), ", ".join(faults))
    targets = [*(role.value for role in Role), KILLED, SPARE, *servers]
    if entry.get("target") not in targets:
        raise BadInput(f"{where}.target", entry.get("target"), ", ".join(targets))
    token, at_span, request = entry.get("before_token"), entry.get("at_span"), entry.get("request", 1)
    if not _is_count(token) or not token < n_tokens:
        raise BadInput(f"{where}.before_token", token, f"a token from 0 to {n_tokens - 1}")
    roles = [role.value for role in Role]
    if at_span is not None and at_span not in roles:
        raise BadInput(f"{where}.at_span", at_span, ", ".join(roles))
    if not _is_count(request) or request < 1 or (request > 1 and at_span is None):
        raise BadInput(f"{where}.request", request, "1 or more, and only together with at_span")
    after_s, to = _seconds(entry, "after_s", where), _to(entry.get("to"), where, to_span)
    fault, seconds = Fault(entry["fault"]), _seconds(entry, "seconds", where)
    if (fault is Fault.PAUSE) != (seconds is not None):
        raise BadInput(f"{where}.seconds", seconds, "a number above 0 for a pause, and for nothing else")
    if (fault is Fault.MOVE) != (to is not None):
        raise BadInput(f"{where}.to", entry.get("to"), "[start, end] for a move, and for nothing else")
    return FaultSpec(fault, entry["target"], token, at_span, request, after_s, seconds, to)


def _seconds(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    value = entry.get(name)
    if value is not None and (
        not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0
    ):
        raise BadInput(f"{where}.{name}", value, "a number above 0")
    return value


def _to(value: Any, where: str, to_span: ToSpan) -> Span | None:
    if value is None:
        return None
    try:
        start, end = value
        return to_span(start, end)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}.to", value, f"[start, end] ({error})") from error


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def due(
    faults: Iterable[FaultSpec], *, token: int, at_span: str | None = None, request: int = 1
) -> tuple[FaultSpec, ...]:
    """The faults due at one place of the client's way, in the order of the file."""
    here = (token, at_span, request)
    return tuple(spec for spec in faults if (spec.before_token, spec.at_span, spec.request) == here)


def resolve(target: str, chain: Sequence[str]) -> str:
    """The server that a target means.

    :param chain: names of the servers that the client uses, in the order of their blocks
    :raises ValueError: if the chain has no such place (a middle needs three spans)
    """
    if target not in {role.value for role in Role}:
        return target
    role = Role(target)
    if not chain or (role is Role.MIDDLE and len(chain) < 3):
        raise ValueError(f"a chain of {len(chain)} spans has no {role.value} one")
    return {Role.FIRST: chain[0], Role.MIDDLE: chain[len(chain) // 2], Role.LAST: chain[-1]}[role]
