"""How a real server gets from one span to another: what it loads, announces, waits for and drops, in which order.

Pure: a plan is a list of actions, and the way back from anywhere in it is another one.
``swarmlab.bridge.serving.mover`` carries them out. Blocks in both spans appear in no ``Load`` and no ``Drop``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from swarmlab.errors import BadInput
from swarmlab.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mode(StrEnum):
    """``prefetch``: the new blocks are loaded beside the old ones. ``in_place``: one is dropped, one is loaded."""

    PREFETCH = "prefetch"
    IN_PLACE = "in_place"


MODES = ("auto", *Mode)


@dataclass(frozen=True)
class Announce:
    """Say what is served and where the server is going.

    :param online: what clients may use; None for nothing
    :param wants: the span it is moving to; None if it is not moving
    """

    online: Span | None
    wants: Span | None = None


@dataclass(frozen=True)
class Load:
    """Read one block and have it ready."""

    block: int


@dataclass(frozen=True)
class Check:
    """Look at the swarm again: is it still right to leave ``leaving``, the next blocks to be given up?"""

    leaving: tuple[int, ...]


@dataclass(frozen=True)
class Drain:
    """Let sessions that use these blocks, which nobody is told of any more, finish."""

    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Drop:
    """Free these blocks."""

    blocks: tuple[int, ...]


Action: TypeAlias = Announce | Load | Check | Drain | Drop


@dataclass(frozen=True)
class MemoryPlan:
    """Which way to go, and the numbers behind it.

    :param needed_bytes: for the new blocks beside the old ones, with what loading one takes for a moment
    :param free_bytes: free now, less what the attention cache may still grow and a reserve
    """

    mode: Mode
    needed_bytes: int
    free_bytes: int
    reason: str


def memory_plan(
    wish: str, *, n_new: int, block_bytes: int, raw_block_bytes: int, free_bytes: int
) -> MemoryPlan:
    """
    :param wish: ``prefetch``, ``in_place`` or ``auto``
    :param n_new: blocks to load
    :param block_bytes: one block as it is held, with its adapters
    :param raw_block_bytes: what loading one takes for a moment, before it is quantized; 0 if in another memory
    :raises BadInput: for another wish
    """
    if wish not in MODES:
        raise BadInput("reload", wish, ", ".join(MODES))
    needed = n_new * block_bytes + raw_block_bytes
    fits = needed <= free_bytes
    if wish == "auto":
        mode = Mode.PREFETCH if fits else Mode.IN_PLACE
        reason = f"{n_new} blocks {'fit' if fits else 'do not fit'} beside those held"
    else:
        mode, reason = Mode(wish), "as told"
    return MemoryPlan(mode, needed, free_bytes, reason)


def plan_move(old: Span, new: Span, mode: Mode, *, announced: bool = True) -> list[Action]:
    """The way from ``old`` to ``new``, both of the same width; nothing if they are equal.

    :param announced: False if nobody knew of the move before: one block is loaded while that spreads, and a rival that
        was earlier then spares the others
    """
    if old.length != new.length:
        raise ValueError(f"a server that holds {old} cannot move to {new}: another width")
    if old == new:
        return []
    if mode is Mode.PREFETCH:
        return _prefetched(old, new, announced)
    return _shifted(old, new) if old.overlap(new) else _one_by_one(old, new)


def plan_mend(held: Iterable[int], home: Span) -> list[Action]:
    """The way back to ``home`` from any set of held blocks; what ``home`` has of them is in one piece.

    Nothing is loaded that is held, and no more than ``home`` at once where something has to be loaded.
    """
    has = frozenset(held)
    extra, missing = tuple(sorted(has - set(home))), [block for block in home if block not in has]
    served = contiguous(has & set(home))
    plan: list[Action] = [Announce(served, home if missing else None)]
    if extra:
        plan += [Drain(extra), Drop(extra)]
    for block in _nearest_first(missing, served, home):
        served = _joined(served, block)
        plan += [Load(block), Announce(served, None if served == home else home)]
    return plan


def contiguous(blocks: Iterable[int]) -> Span | None:
    """The blocks as a span; None for none.

    :raises ValueError: if there is a hole among them
    """
    ordered = sorted(blocks)
    if not ordered:
        return None
    span = Span(ordered[0], ordered[-1] + 1)
    if span.length != len(ordered):
        raise ValueError(f"blocks {ordered} are not in one piece")
    return span


def _prefetched(old: Span, new: Span, announced: bool) -> list[Action]:
    fresh = [block for block in new if block not in old]
    gone = tuple(block for block in old if block not in new)
    kept = contiguous(set(old) & set(new))
    loads: list[Action] = [Load(block) for block in _nearest_first(fresh, kept, new)]
    if not announced and len(loads) > 1:
        loads.insert(1, Check(gone))
    return [
        Announce(old, new), *loads, Check(gone), Announce(new), Drain(gone), Check(gone), Drop(gone),
    ]  # fmt: skip


def _shifted(old: Span, new: Span) -> list[Action]:
    # One block goes at the far end, one comes at the near end: in one piece, and one short at most.
    plan: list[Action] = [Announce(old, new)]
    at, step = old, 1 if new.start > old.start else -1
    while at != new:
        gone, fresh = (at.start, at.end) if step > 0 else (at.end - 1, at.start - 1)
        short = Span(at.start + 1, at.end) if step > 0 else Span(at.start, at.end - 1)
        at = Span(at.start + step, at.end + step)
        left = (gone,)
        plan += [Check(left), Announce(short, new), Drain(left), Check(left), Drop(left)]
        plan += [Load(fresh), Announce(at, None if at == new else new)]
    return plan


def _one_by_one(old: Span, new: Span) -> list[Action]:
    # Nothing is shared, and a server serves one piece: the old span goes, the new one is served as it comes.
    gone = tuple(old)
    plan: list[Action] = [
        Announce(old, new), Check(gone), Announce(None, new), Drain(gone), Check(gone), Drop(gone),
    ]  # fmt: skip
    for block in new:
        plan += [Load(block), Announce(Span(new.start, block + 1), None if block + 1 == new.end else new)]
    return plan


def _nearest_first(blocks: Iterable[int], kept: Span | None, span: Span) -> list[int]:
    # So that with each block the piece that is held grows.
    anchor = span.start if kept is None else kept.start
    return sorted(blocks, key=lambda block: abs(block - anchor))


def _joined(span: Span | None, block: int) -> Span:
    return Span(block, block + 1) if span is None else Span(min(span.start, block), max(span.end, block + 1))
