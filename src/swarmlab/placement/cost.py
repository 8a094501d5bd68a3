"""What changing a span costs a server: blocks to load, seconds out of service."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from swarmlab.types import Span

# Llama-65B read from disk, quantized to nf4, one adapter: 18 blocks in 543 s in the log of petals' issue 389.
REPORTED_S_PER_BLOCK = 30.0


@dataclass(frozen=True)
class LoadCost:
    """How long a server takes to load blocks.

    :param s_per_block: measured seconds to read, quantize and place one block
    :param s_per_move: seconds a change of span takes however few blocks it loads
    :param keeps_overlap: True if blocks in both spans stay loaded and serve on; unmodified Petals reloads all
    :raises BadInput: for seconds that are negative or not finite
    """

    s_per_block: float = REPORTED_S_PER_BLOCK
    s_per_move: float = 0.0
    keeps_overlap: bool = True

    def __post_init__(self) -> None:
        for field in ("s_per_block", "s_per_move"):
            value = getattr(self, field)
            if not math.isfinite(value) or value < 0:
                raise BadInput(f"load.{field}", value, "seconds, 0 or more")

    @property
    def is_free(self) -> bool:
        """Nothing takes any time, as in the paper's simulation."""
        return self.s_per_block == 0 and self.s_per_move == 0

    def blocks_loaded(self, old: Span | None, new: Span) -> int:
        """Blocks that going from ``old`` to ``new`` loads; a span that stays loads none."""
        if old is None:
            return new.length
        if old == new:
            return 0
        return new.length - old.overlap(new) if self.keeps_overlap else new.length

    def reload_s(self, old: Span | None, new: Span) -> float:
        """Seconds until ``new`` is wholly served."""
        if old == new:
            return 0.0
        return self.s_per_move + self.s_per_block * self.blocks_loaded(old, new)
