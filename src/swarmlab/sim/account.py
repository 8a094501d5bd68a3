"""What one change of span costs, counted while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swarmlab.sim.world import TIME_DIGITS

if TYPE_CHECKING:
    from swarmlab.types import Span


@dataclass
class ReloadAccount:
    """One reload, or the first load of a server that joins.

    :param old: what the server held before; None for one that joins
    :param kept: blocks that stay loaded
    :param lost_block_s: blocks times seconds that the server has not served
    """

    old: Span | None
    since_s: float
    new: Span | None = None
    kept: int = 0
    loaded: int = 0
    redundant: int = 0
    lost_block_s: float = 0.0

    def __post_init__(self) -> None:
        self._counted_s = self.since_s

    def load(self, blocks: tuple[int, ...]) -> None:
        """Blocks have been loaded."""
        self.loaded += len(blocks)
        self.redundant += sum(self.old is not None and block in self.old for block in blocks)

    def count(self, now_s: float, missing: int) -> None:
        """Since the last count so many blocks were not served."""
        self.lost_block_s += missing * (now_s - self._counted_s)
        self._counted_s = now_s

    def row(self, now_s: float, *, completed: bool) -> dict[str, Any]:
        """The account as a row of ``reloads``.

        :param completed: False if the server was gone before all was loaded
        """
        old, new = self.old, self.new
        return {
            "old_start": old.start if old else None,
            "old_end": old.end if old else None,
            "new_start": new.start if new else None,
            "new_end": new.end if new else None,
            "kept": self.kept,
            "loaded": self.loaded,
            "redundant": self.redundant,
            "no_op": new is not None and old == new,
            "out_of_service_s": round(now_s - self.since_s, TIME_DIGITS),
            "lost_block_s": round(self.lost_block_s, TIME_DIGITS),
            "completed": completed,
        }
