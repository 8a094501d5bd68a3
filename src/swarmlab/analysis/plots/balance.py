"""Draws placement experiments. Nothing in a figure is told by colour alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.balance import OPTIMAL, ORACLE, parts
from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption, show_zero
from swarmlab.analysis.style import style_of
from swarmlab.analysis.tables import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

    from swarmlab.analysis.balance import Part, Row

MOST_COLUMNS = 3
POINTS = 96  # means over so many stretches of time are drawn
# Of ten lines on each other only some can be followed: the bound and the two that the text is about.
WIDTHS = {OPTIMAL: 2.2, "petals": 1.3, "swarmlab": 1.7}
OTHER_WIDTH, OTHER_ALPHA = 0.8, 0.6
SHARE = "swarm_tps_over_optimal_mean"
OF_THE_BOUND = (SHARE, "zero_throughput_share")  # the bound loads nothing
# Heading to place, metric and how it is written.
COLUMNS = {
    "share of bound\n(95 %)": (0.39, SHARE, ""),
    "over\noracle": (0.6, "swarm_tps_over_oracle", ".2f"),
    "time\nat 0": (0.7, "zero_throughput_share", ".1%"),
    "moves": (0.81, "moves", ".0f"),
    "capacity\nlost": (0.9, "capacity_lost_share", ".1%"),
}
TITLES = {
    "instant": "as the paper has it: blocks load in no time",
    "reload": "with the cost of reloading",
    "complete": "records are complete",
    "lapses": "each server is unseen for a minute, once an hour",
    "slow_news": "records are seen after a minute",
    "few": "records are complete",
    "few_lapses": "each server is unseen for a minute, once an hour",
}
SWEPT = "swept"  # of +exp=churn: its settings are those of the command line
SWEPT_SETTINGS = {
    "sim.lifetime_min_s": ("{:g} h lifetimes", 3600.0),
    "sim.s_per_block": ("{:g} s per block", 1.0),
}


def balance_figure(
    history: Mapping[str, Iterable[Row]], scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]
) -> Figure:
    """Throughput over time for each arm, below it the number of servers where that changes, and a table; up to three
    scenarios side by side.

    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    found = parts(history)
    columns = len(scenarios) if len(scenarios) <= MOST_COLUMNS else 2
    rows = math.ceil(len(scenarios) / columns)
    references = {
        scenario: found[scenario, next(iter(arms)), 0].balance for scenario, arms in scenarios.items()
    }
    strip = any(_settled_size(samples) is None for samples in references.values())
    heights = (4, 1, 1.8) if strip else (4, 1.8)
    with rc_context(LOOK):
        figure = Figure(figsize=(5.2 * columns, (6.2 if strip else 5.4) * rows), layout="constrained")
        grid = figure.add_gridspec(len(heights) * rows, columns, height_ratios=heights * rows)
        tops: dict[int, Axes] = {}
        for place, (scenario, arms) in enumerate(scenarios.items()):
            row, column = len(heights) * (place // columns), place % columns
            # swarms of one size share an axis; of others the smaller ones could not be seen
            size = max((sample["n_active"] for sample in references[scenario]), default=0)
            axes = figure.add_subplot(grid[row, column], sharey=tops.get(size))
            tops.setdefault(size, axes)
            for arm in sorted(arms, key=lambda arm: style_of(arm).order):
                _draw_arm(axes, arm, found[scenario, arm, 0])
            axes.set_title(_title(scenario, references[scenario], info), loc="left")
            lowest = axes
            if strip:
                axes.tick_params(labelbottom=False)
                lowest = figure.add_subplot(grid[row + 1, column], sharex=axes)
                _draw_active(lowest, references[scenario])
            lowest.set_xlabel("simulated hours")
            _draw_shares(figure.add_subplot(grid[row + len(heights) - 1, column]), arms)
            if column == 0:
                axes.set_ylabel("swarm throughput, tokens/s")
                if strip:
                    lowest.set_ylabel("active\nservers")
        for axes in tops.values():
            show_zero(axes)
        figure.suptitle("Throughput of the weakest block while servers come and go")
        put_caption(figure, _caption(scenarios, info))
    return figure


def _settled_size(samples: list[Row]) -> int | None:
    """The number of servers, where it stays the same once all have come."""
    counts = {row["n_active"] for row in samples[len(samples) // 2 :]}
    return counts.pop() if len(counts) == 1 else None


def _title(scenario: str, samples: list[Row], info: Mapping[str, Any]) -> str:
    number_of = _settled_size(samples)
    size = "" if number_of is None else f"{number_of} servers, "
    return size + (_cell_of_a_sweep(info) if scenario == SWEPT else TITLES.get(scenario, scenario))


def _cell_of_a_sweep(info: Mapping[str, Any]) -> str:
    """The settings of this run that others of the sweep have differently."""
    given = {name: value for name, _, value in (one.partition("=") for one in info.get("overrides", ()))}
    words = [
        form.format(float(given[name]) / unit)
        for name, (form, unit) in SWEPT_SETTINGS.items()
        if name in given
    ]
    return ", ".join(words) or TITLES["few"]


def _draw_arm(axes: Axes, arm: str, part: Part) -> None:
    style = style_of(arm)
    hours, tps = _thinned(part.balance, "optimal_tps" if arm == OPTIMAL else "swarm_tps")
    # markers of different arms at different times, so that lines on top of each other can be told apart
    marked = slice(style.order % 8, None, 8)
    axes.plot(
        hours, tps, color=style.color, linestyle=style.line, marker=style.marker, markevery=marked, markersize=3.5,
        linewidth=WIDTHS.get(arm, OTHER_WIDTH), alpha=1.0 if arm in WIDTHS else OTHER_ALPHA, zorder=2 + style.order,
    )  # fmt: skip
    draw_grid(axes)


def _draw_active(axes: Axes, samples: list[Row]) -> None:
    axes.plot(*_thinned(samples, "n_active"), color="0.3", linewidth=1.0)
    axes.set_ylim(bottom=0)
    draw_grid(axes)


def _draw_shares(axes: Axes, arms: Mapping[str, Mapping[str, Any]]) -> None:
    """A table that is also the legend."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(arms), -1)
    columns = dict(COLUMNS)
    if ORACLE not in arms:
        del columns["over\noracle"]
    for words, (x, _, _) in columns.items():
        axes.text(x, -0.35, words, fontsize=SMALL, color="0.3", va="bottom")
    for line, (arm, metrics) in enumerate(arms.items()):
        style, y = style_of(arm), line + 0.35
        axes.plot(
            [0.0, 0.035, 0.07], [y] * 3, color=style.color, linestyle=style.line, marker=style.marker,
            markevery=[1], markersize=4, linewidth=WIDTHS.get(arm, OTHER_WIDTH),
        )  # fmt: skip
        axes.text(0.09, y, style.label, va="center", fontsize=SMALL)
        for x, metric, form in columns.values():
            words = _cell(arm, metrics, metric, form)
            axes.text(x, y, words, va="center", fontsize=SMALL)


def _cell(arm: str, metrics: Mapping[str, Any], metric: str, form: str) -> str:
    if arm == OPTIMAL and metric not in OF_THE_BOUND:
        return "-"
    if metric == SHARE:
        return "100%" if arm == OPTIMAL else _share(metrics)
    return number(metrics[metric], form)


def _share(metrics: Mapping[str, Any]) -> str:
    share = number(metrics[SHARE], ".1%")
    low, high = metrics["swarm_tps_over_optimal_low"], metrics["swarm_tps_over_optimal_high"]
    return share if low is None or high is None else f"{share} ({100 * low:.0f} to {100 * high:.0f})"


def _thinned(rows: list[Row], name: str) -> tuple[np.ndarray, np.ndarray]:
    hours = np.array([row["t"] / 3600 for row in rows])
    values = np.array([row[name] for row in rows], dtype=float)
    stretches = np.array_split(np.arange(len(rows)), min(POINTS, len(rows)))
    return (
        np.array([hours[stretch].mean() for stretch in stretches]),
        np.array([values[stretch].mean() for stretch in stretches]),
    )


def _caption(scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> str:
    repeats = max(metrics["repeats"] for arms in scenarios.values() for metrics in arms.values())
    oracle = (
        "The oracle pays for its reloads, but knows at once what is so and who leaves within ten minutes; it is no "
        "bound. "
    )
    text = (
        f"Curves: the first of n = {repeats} population(s), means over stretches of time; numbers: means over all of "
        "them, after the warm-up. Throughput is what servers really serve, not what they announce. "
        "Upper bound: linear relaxation for the servers present, all moves free. "
        f"{oracle if any(ORACLE in arms for arms in scenarios.values()) else ''}"
        "Capacity lost: share of all servers' blocks times tokens/s that was out of service while reloading. "
    )
    return text + provenance(info)
