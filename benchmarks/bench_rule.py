# ruff: noqa: INP001 (scripts, not a package)
"""Compares the window rule with petals' own, side by side in one run: ``python benchmarks/bench_rule.py``."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np

from swarmlab.bridge import compat
from swarmlab.placement.rule import compiled, window_start, window_start_numpy

ROUNDS = 5  # the fastest of so many is reported: the machine's other work only ever adds time
VECTORS = 8  # different swarms per row; every function sees the same ones


def swarm_throughputs(rng: np.random.Generator, n_blocks: int, n_servers: int) -> np.ndarray:
    """Throughput per block of servers with lognormal throughputs and spans of up to half the model."""
    values = np.zeros(n_blocks)
    for _ in range(n_servers):
        width = rng.integers(1, n_blocks // 2 + 1)
        start = rng.integers(0, n_blocks - width + 1)
        values[start : start + width] += rng.lognormal(7, 1)
    return values


def seconds_per_call(
    choose: Callable[[np.ndarray, int], int], vectors: list[np.ndarray], width: int
) -> float:
    """Fastest mean time of one call, in seconds."""
    start = time.perf_counter()
    choose(vectors[0], width)
    repeats = max(1, int(0.01 / (time.perf_counter() - start + 1e-9) / len(vectors)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(repeats):
            for values in vectors:
                choose(values, width)
        best = min(best, (time.perf_counter() - start) / repeats / len(vectors))
    return best


def table() -> tuple[list[str], float]:
    """The comparison as Markdown, and the smallest ratio in it."""
    compat.apply()
    from petals.server.block_selection import _choose_best_start as original  # noqa: PLC0415 (after apply)

    start = time.perf_counter()
    compiled()
    about = (
        "Microseconds of one choice of a window; the fastest of several rounds, side by side in one process. Real, "
        f"{os.cpu_count()} CPU cores ({platform.machine()}), numba {version('numba')}, "
        f"load average {os.getloadavg()[0]:.0f}: read ratios. Made by `python benchmarks/bench_rule.py`."
    )
    lines = [
        about,
        "",
        f"Compiled loops ready after {time.perf_counter() - start:.1f} s (once per process).",
        "",
        "| blocks | span | throughputs | petals, us | NumPy, us | compiled, us | petals / compiled |",
        "|---|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    kinds = {
        "8 servers": lambda n: swarm_throughputs(rng, n, 8),
        "200 servers": lambda n: swarm_throughputs(rng, n, 200),
        "no two alike": rng.random,
        "0 or 1": lambda n: rng.integers(0, 2, n).astype(float),
    }
    ratios = []
    for n_blocks, (kind, draw), share in product((80, 1000), kinds.items(), (16, 4, 2)):
        width = n_blocks // share
        vectors = [draw(n_blocks) for _ in range(VECTORS)]
        for values in vectors:
            if window_start(values, width) != original(values, width):
                raise AssertionError("the functions differ: run tests/placement/test_rule.py")
        times = [
            seconds_per_call(choose, vectors, width)
            for choose in (original, window_start_numpy, window_start)
        ]
        ratios.append(times[0] / times[2])
        cells = " | ".join(f"{seconds * 1e6:.2f}" for seconds in times)
        lines.append(f"| {n_blocks} | {width} | {kind} | {cells} | {ratios[-1]:.0f} |")
    return lines, min(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the table to this Markdown file")
    arguments = parser.parse_args()
    lines, worst = table()
    lines += ["", f"Smallest ratio: {worst:.0f}."]
    sys.stdout.write("\n".join(lines) + "\n")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
