"""Draws what the clients of simulated swarms got. Nothing in a figure is told by colour alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.clients import SHOWN
from swarmlab.analysis.plots.balance import TITLES
from swarmlab.analysis.plots.look import LOOK, draw_estimate, draw_grid, provenance, put_caption, show_zero
from swarmlab.analysis.stats import Estimate
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

    from swarmlab.analysis.clients import Row

TITLE_LETTERS = 40  # in a line
STRETCHES = 36  # means over so many stretches of time are drawn
PER_CENT = ("sessions_failed_share", "stalled_share", "seeking_share")


def clients_figure(
    delivered: Iterable[Row], scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]
) -> Figure | None:
    """A column for each scenario with clients: tokens/s over time, and below what the clients met, arm by arm.

    :param delivered: rows of that kind
    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    :returns: None if there were no clients
    """
    shown = {name: _with_clients(arms) for name, arms in scenarios.items() if has_clients(arms)}
    if not shown:
        return None
    lines = max(len(arms) for arms in shown.values())
    below = 0.35 + 0.17 * lines
    with rc_context(LOOK):
        figure = Figure(
            figsize=(1.2 + 2.9 * len(shown), 2.4 + (below + 0.35) * len(SHOWN)), layout="constrained"
        )
        grid = figure.subplots(
            1 + len(SHOWN),
            len(shown),
            squeeze=False,
            sharex="row",
            height_ratios=(2.0, *[below] * len(SHOWN)),
        )
        rows = list(delivered)
        for axes, (scenario, arms) in zip(grid.T, shown.items(), strict=True):
            mine = [row for row in rows if row["scenario"] == scenario]
            _draw_over_time(axes[0], arms, mine)
            axes[0].set_title(_title(scenario, mine), loc="left")
            for one, (metric, words) in zip(axes[1:], SHOWN.items(), strict=True):
                _draw_metric(one, arms, metric, words)
        for axes, metric in zip(grid[1:, 0], SHOWN, strict=True):
            axes.set_xlim(*_limits(shown.values(), metric))
        for axes in grid[1:, 1:].flat:
            axes.set_yticklabels([])
        grid[0, 0].set_ylabel("tokens/s delivered")
        figure.suptitle("What clients get while servers come and go")
        put_caption(figure, _caption(shown, info))
    return figure


def has_clients(arms: Mapping[str, Any]) -> bool:
    """
    :param arms: of one scenario, as in ``summary.json``
    """
    return bool(_with_clients(arms))


def _with_clients(arms: Mapping[str, Any]) -> dict[str, Any]:
    return {arm: metrics for arm, metrics in arms.items() if "delivered_tps" in metrics}


def _title(scenario: str, rows: list[Row]) -> str:
    world = scenario.removesuffix("_clients")
    clients = max(row["clients"] for row in rows)
    return textwrap.fill(f"{clients} clients, {TITLES.get(world, world)}", TITLE_LETTERS)


def _draw_over_time(axes: Axes, arms: Mapping[str, Any], rows: list[Row]) -> None:
    for arm in sorted(arms, key=lambda one: style_of(one).order):
        mine = [row for row in rows if row["arm"] == arm and row["repeat"] == 0]
        stretches = np.array_split(np.arange(len(mine)), min(STRETCHES, len(mine)))
        hours = [np.mean([mine[i]["t"] / 3600 for i in part]) for part in stretches]
        tps = [
            sum(mine[i]["tokens"] for i in part) / sum(mine[i]["seconds"] for i in part) for part in stretches
        ]
        style = style_of(arm)
        axes.plot(
            hours, tps, color=style.color, linestyle=style.line, marker=style.marker,
            markevery=slice(style.order % 6, None, 6), markersize=3.5,
            linewidth=1.6 if arm == "swarmlab" else 1.0, zorder=2 + style.order,
        )  # fmt: skip
    show_zero(axes)
    axes.set_xlabel("simulated hours")
    draw_grid(axes)


def _draw_metric(axes: Axes, arms: Mapping[str, Any], metric: str, words: str) -> None:
    factor = _factor(metric)
    for line, (arm, metrics) in enumerate(arms.items()):
        value, low, high = (metrics[name] for name in (metric, f"{metric}_low", f"{metric}_high"))
        if value is None:
            axes.text(0.02, line, "none", transform=axes.get_yaxis_transform(), va="center", color="0.4")
            continue
        scaled = [None if one is None else factor * one for one in (low, high)]
        found = Estimate(factor * value, *scaled, n=metrics["repeats"])
        draw_estimate(axes, line, found, style_of(arm), horizontal=True)
    axes.set_yticks(range(len(arms)), [style_of(arm).label for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_xlabel(f"{words}, %" if metric in PER_CENT else words)
    draw_grid(axes, "x")


def _factor(metric: str) -> float:
    return 100.0 if metric in PER_CENT else 1.0


def _limits(shown: Iterable[Mapping[str, Any]], metric: str) -> tuple[float, float]:
    """From a little below nothing, so that a marker there is whole, to a little above the highest interval."""
    values = [arm[name] for arms in shown for arm in arms.values() for name in (metric, f"{metric}_high")]
    top = max([_factor(metric) * value for value in values if value is not None], default=0.0) or 1.0
    return -0.03 * top, 1.06 * top


def _caption(shown: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> str:
    repeats = max(metrics["repeats"] for arms in shown.values() for metrics in arms.values())
    return (
        f"Curves: the first of n = {repeats} population(s), the warm-up included; markers: means over all of them, "
        "after the warm-up, with intervals of 95 %. A stall: a session has lost a server, or a new one does not find "
        "or reach its servers at once; to the end of the replay. Clients choose servers as the real ones of swarmlab, "
        "in all arms, and share them evenly. "
        f"{provenance(info)}"
    )
