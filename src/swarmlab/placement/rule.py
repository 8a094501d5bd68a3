"""Rule (1) of Appendix D (arXiv 2312.08361): put a run of blocks where the weakest blocks gain most."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from swarmlab.placement.layout import Floats


@cache
def compiled() -> ModuleType | None:
    """The compiled loops, or None where numba is missing; the answers are the same either way."""
    try:
        return importlib.import_module("swarmlab.placement.kernels")
    except ImportError:
        return None


@cache
def loops(of: str = "move") -> ModuleType:
    """The compiled loops of the swarmlab policy, which has no others; numba takes 0.3 s to import.

    :param of: ``move``, or ``rival`` for those that rank servers
    """
    return importlib.import_module(f"swarmlab.placement.{of}_kernels")


def window_start(values: Floats, width: int) -> int:
    """Start of the window whose sorted values are lexicographically smallest; of equals, the leftmost.

    :param values: throughput of each block, in any unit, all finite
    :param width: blocks in the window, 1 to ``len(values)``
    :raises ValueError: for a value that is not finite or an impossible width
    """
    if not 1 <= width <= len(values):
        raise ValueError(f"a window of {width} blocks does not fit into {len(values)}")
    kernels = compiled()
    if kernels is None:
        return window_start_numpy(values, width)
    try:
        start = kernels.window_start(values, width)
    except TypeError:  # compiled for contiguous float64 only
        start = kernels.window_start(np.ascontiguousarray(values, dtype=np.float64), width)
    if start < 0:
        raise ValueError("a block's throughput is not finite")
    return start


def window_start_numpy(values: Floats, width: int) -> int:
    """The same as :func:`window_start`, without compiled code."""
    if not np.isfinite(values).all():
        raise ValueError("a block's throughput is not finite")
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    starts = np.arange(len(windows))
    for column in range(width):  # keep the windows that are still minimal, one order statistic after another
        if len(starts) == 1:
            break
        ranked = windows[starts, column]
        starts = starts[ranked == ranked.min()]
    return int(starts[0])
