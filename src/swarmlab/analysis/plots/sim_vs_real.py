"""Draws +exp=sim_vs_real: one real swarm and many simulated ones, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from swarmlab.analysis.plots.look import LOOK, draw_grid, provenance, put_caption, put_legend, show_zero
from swarmlab.analysis.sim_vs_real import REAL, SIMULATED
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from swarmlab.analysis.rebalance import History, Row

BAND: Any = {"color": "0.85"}
MEAN: Any = {"color": "0.4", "linestyle": "--", "linewidth": 1.0}
SHOWN = (("moves", "moves"), ("blocks_loaded", "blocks loaded"), ("out_of_service_s", "out of service, s"))


def agreement_figure(
    history: History, arms: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]
) -> Figure:
    """
    :param arms: as in ``summary.json``
    :param info: ``run.json``
    """
    ordered = sorted(arms, key=lambda arm: style_of(arm).order)
    with rc_context(LOOK):
        figure = Figure(figsize=(10.0, 1.3 + 1.35 * len(ordered)), layout="constrained")
        grid = figure.add_gridspec(len(ordered), 1 + len(SHOWN), width_ratios=(3.4, 1, 1, 1))
        first: Axes | None = None
        for line, arm in enumerate(ordered):
            axes = figure.add_subplot(grid[line, 0], sharex=first, sharey=first)
            first = first or axes
            _draw_times(axes, [row for row in history["balance"] if row["arm"] == arm], arm)
            axes.tick_params(labelbottom=line == len(ordered) - 1)
        assert first is not None
        show_zero(first)
        figure.axes[-1].set_xlabel("seconds since the first scenario began")
        for column, (metric, words) in enumerate(SHOWN):
            _draw_metric(figure.add_subplot(grid[:, 1 + column]), ordered, arms, metric, words)
        figure.suptitle("One real swarm and simulations of it: swarm throughput, and what moving cost")
        count = max((metrics["simulations"] for metrics in arms.values()), default=0)
        put_caption(
            figure,
            f"Real: n = 1 swarm per arm. Simulated: n = {count} seeds; band: least to most, line: mean. Markers: real "
            f"(filled) and mean of the simulations (hollow) with least and most. {provenance(info)}",
            put_legend(figure, _legend(), 3),
        )
    return figure


def _legend() -> list[Any]:
    return [
        Line2D([], [], color="black", linewidth=1.4, label="real (in the arm's colour)"),
        Line2D([], [], **MEAN, label="simulated, mean"),
        Patch(**BAND, label="simulated, least to most"),
    ]


def _draw_times(axes: Axes, rows: Sequence[Row], arm: str) -> None:
    style = style_of(arm)
    real = [row for row in rows if row["scenario"] == REAL]
    by_time: dict[float, list[float]] = {}
    for row in rows:
        if row["scenario"] == SIMULATED:
            by_time.setdefault(row["t"], []).append(row["swarm_tps"])
    times = sorted(by_time)
    if times:
        low, high = ([pick(by_time[t]) for t in times] for pick in (min, max))
        axes.fill_between(times, low, high, step="post", **BAND)
        axes.plot(
            times,
            [np.mean(by_time[t]) for t in times],
            **MEAN,
        )
    axes.plot(
        [row["t"] for row in real], [row["swarm_tps"] for row in real], color=style.color, drawstyle="steps-post",
        linewidth=1.4,
    )  # fmt: skip
    axes.set_ylabel(f"{style.label}\ntokens/s")
    draw_grid(axes)


def _draw_metric(
    axes: Axes, ordered: Sequence[str], arms: Mapping[str, Mapping[str, Any]], metric: str, words: str
) -> None:
    for line, arm in enumerate(ordered):
        style, found = style_of(arm), arms[arm]
        mean, low, high = (found[f"{metric}_{name}"] for name in ("simulated", "low", "high"))
        if mean is not None:
            spread = [[mean - low], [high - mean]]
            axes.errorbar(
                [mean], [line + 0.15], xerr=spread, color=style.color, marker=style.marker, markerfacecolor="white",
                capsize=3, markersize=5,
            )  # fmt: skip
        if found[f"{metric}_real"] is not None:
            axes.plot(
                [found[f"{metric}_real"]], [line - 0.15], color=style.color, marker=style.marker, markersize=6
            )
    axes.set_ylim(len(ordered) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xlabel(words)
    axes.set_xlim(left=-0.05 * max(1.0, axes.get_xlim()[1]))
    draw_grid(axes, "x")
