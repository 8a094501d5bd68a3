"""How a server gets from one span to another: which blocks it loads when, and what it serves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.types import Span

if TYPE_CHECKING:
    from swarmlab.placement.cost import LoadCost


@dataclass(frozen=True)
class Step:
    """One stretch of loading.

    :param blocks: what is loaded in it
    :param serving: what the server serves while it lasts; None for nothing
    :param kept: blocks of the old span that the whole move keeps
    """

    blocks: tuple[int, ...]
    seconds: float
    serving: Span | None
    kept: int = 0


def steps(old: Span | None, new: Span, load: LoadCost) -> list[Step]:
    """The way from ``old`` to ``new``.

    A server that keeps what both spans share drops one block and loads one, so that what it serves stays in one
    piece and is at most one block short; where nothing is shared it serves its new blocks as they come. Any other
    server, and one that joins, unloads everything and serves again when all is loaded.

    :param old: what is loaded now; None for nothing
    """
    if old is None or not load.keeps_overlap:
        seconds = load.s_per_move + load.s_per_block * new.length
        return [Step(tuple(new), seconds, None)]
    if old.overlap(new) == 0:
        return _one_by_one(new, load)
    return _shifted(old, new, load)


def _one_by_one(new: Span, load: LoadCost) -> list[Step]:
    plan = []
    for count, block in enumerate(new):
        extra_s = load.s_per_move if count == 0 else 0.0
        serving = Span(new.start, block) if count else None
        plan.append(Step((block,), load.s_per_block + extra_s, serving))
    return plan


def _shifted(old: Span, new: Span, load: LoadCost) -> list[Step]:
    by, kept = abs(new.start - old.start), old.overlap(new)
    plan = []
    for count in range(by):
        if new.start > old.start:
            block = old.end + count
            left = (old.start + count + 1, block)
        else:
            block = old.start - 1 - count
            left = (block + 1, old.end - 1 - count)
        serving = Span(*left) if left[0] < left[1] else None
        extra_s = load.s_per_move if count == 0 else 0.0
        plan.append(Step((block,), load.s_per_block + extra_s, serving, kept))
    return plan
