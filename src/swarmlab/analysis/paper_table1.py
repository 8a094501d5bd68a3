"""Table 1 of the Petals paper (arXiv 2312.08361): steps/s of unreliable servers, for comparison. Data only.

BLOOM-7.1B on four stages of 8, 7, 8 and 7 blocks, one GTX 1080 Ti each; a single sequence; means of 50 runs. The four
cells marked as confirmed are also quoted by a second source; the others are recalled and may be wrong in a digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PaperCell:
    """:param steps_per_s: None where the paper says that it did not finish within an hour"""

    steps_per_s: float | None
    source: Literal["confirmed", "recalled"]


RATES = (0.0, 1e-4, 1e-3, 1e-2)
# our arm: length: steps/s at each of RATES
_ROWS: dict[str, dict[int, tuple[float | None, ...]]] = {
    "restart": {128: (17.1, 16.7, 12.0, 0.18), 1024: (15.5, 11.8, 0.48, None)},
    "cacheless": {128: (3.44, 3.44, 3.44, 3.44), 1024: (0.89, 0.89, 0.89, 0.89)},
    "swarmlab": {128: (11.4, 11.4, 10.6, 3.38), 1024: (10.7, 10.7, 7.76, 2.17)},
}
_CONFIRMED = {
    ("restart", 1024, 1e-3),
    ("restart", 1024, 1e-2),
    ("swarmlab", 1024, 1e-3),
    ("swarmlab", 1024, 1e-2),
}
# what the paper calls our arms
NAMES = {
    "restart": "caching with restarts",
    "cacheless": "cache-less inference",
    "swarmlab": "Algorithm 1",
}


def paper_cell(arm: str, length: int, p: float) -> PaperCell | None:
    """What the paper has for our arm; None where it has nothing."""
    row = _ROWS.get(arm, {}).get(length)
    if row is None or p not in RATES:
        return None
    source = "confirmed" if (arm, length, p) in _CONFIRMED else "recalled"
    return PaperCell(row[RATES.index(p)], source)


def paper_ratio(arm: str, length: int, p: float) -> float | None:
    """Relative to the paper's failure-free cell of the same arm and length; 0 where it did not finish."""
    cell, free = paper_cell(arm, length, p), paper_cell(arm, length, 0.0)
    if cell is None or free is None or not free.steps_per_s:
        return None
    return (cell.steps_per_s or 0.0) / free.steps_per_s
