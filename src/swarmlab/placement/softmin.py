"""A soft minimum of the blocks' throughputs: where many blocks tie for the weakest, it still shows a direction.

U(v) = -(1/beta) log mean exp(-beta v) lies a little above min(v) and grows with every weak block that gains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from swarmlab.placement.layout import Floats

SHARPNESS = 30.0  # beta times the mean throughput, at least
# In large swarms the blocks differ less: by about the square root of the number of servers on each. There 1/30 of the
# mean is more than what one of them can change, and servers that join would go past the weakest block.
PER_ROOT = 10.0


def sharpness(mean_tps: float, grain_tps: float) -> float:
    """Beta times the mean throughput, for a swarm with ``mean_tps`` on each block from servers of ``grain_tps``."""
    if not (mean_tps > 0 and grain_tps > 0):
        return SHARPNESS
    return max(SHARPNESS, PER_ROOT * (mean_tps / grain_tps) ** 0.5)


def beta_of(values: Floats) -> float:
    """1/(tokens/s), ``SHARPNESS`` over the mean throughput; 0 in a swarm without any.

    For the search for a layout of a small swarm (``optimum.py``); single moves are weighed with ``sharpness``.
    """
    mean = float(values.mean())
    return SHARPNESS / mean if mean > 0 else 0.0


def utilities(values: Floats, rate_tps: float, width: int, beta: float) -> Floats:
    """The soft minimum for each start at which a server could add ``rate_tps`` to ``width`` blocks.

    :param values: throughput of each block without that server
    :param beta: sharpness, above 0
    """
    floor = float(values.min())
    weights = np.exp(-beta * (values - floor))  # how much each block is in need, 1 for the weakest
    before = np.concatenate([[0.0], np.cumsum(weights)])
    after = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
    inside = before[width:] - before[:-width]
    # sums, not differences: the blocks outside may need far less than those inside
    total = before[: len(inside)] + after[width:] + np.exp(-beta * rate_tps) * inside
    return floor - np.log(total / len(values)) / beta
