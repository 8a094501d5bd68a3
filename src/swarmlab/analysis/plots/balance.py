"""Draws placement experiments. Nothing in a figure is told by colour alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.balance import OPTIMAL, parts
from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption
from swarmlab.analysis.style import style_of
from swarmlab.analysis.tables import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

    from swarmlab.analysis.balance import Part, Row

MOST_COLUMNS = 3
POINTS = 96  # means over so many stretches of time are drawn
TITLES = {
    "instant": "as the paper has it: blocks load in no time",
    "reload": "with the cost of reloading",
    "complete": "records are complete",
    "lapses": "each server is unseen for a minute, once an hour",
    "slow_news": "records are seen after a minute",
    "few": "records are complete",
    "few_lapses": "each server is unseen for a minute, once an hour",
    "complete_clients": "records are complete, with clients",
    "few_clients": "records are complete, with clients",
    "few_lapses_clients": "each server is unseen once an hour, with clients",
}
SWEPT = "swept"  # of +exp=churn: its settings are those of the command line
SWEPT_SETTINGS = {
    "sim.lifetime_min_s": ("{:g} h lifetimes", 3600.0),
    "sim.s_per_block": ("{:g} s per block", 1.0),
}


def balance_figure(
    history: Mapping[str, Iterable[Row]], scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]
) -> Figure:
    """Throughput over time for each arm, with the number of active servers below; up to three scenarios side by side.

    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    found = parts(history)
    columns = len(scenarios) if len(scenarios) <= MOST_COLUMNS else 2
    rows = math.ceil(len(scenarios) / columns)
    with rc_context(LOOK):
        figure = Figure(figsize=(5.2 * columns, 6.2 * rows), layout="constrained")
        grid = figure.add_gridspec(3 * rows, columns, height_ratios=(4, 1, 1.8) * rows)
        tops: dict[int, Axes] = {}
        for place, (scenario, arms) in enumerate(scenarios.items()):
            row, column = divmod(place, columns)
            ordered = sorted(arms, key=lambda arm: style_of(arm).order)
            reference = found[scenario, ordered[0], 0]
            # swarms of one size share an axis; of others the smaller ones could not be seen
            size = max((sample["n_active"] for sample in reference.balance), default=0)
            axes = figure.add_subplot(grid[3 * row, column], sharey=tops.get(size))
            tops.setdefault(size, axes)
            for arm in ordered:
                _draw_arm(axes, arm, found[scenario, arm, 0])
            axes.set_title(_title(scenario, reference.balance, info), loc="left")
            axes.tick_params(labelbottom=False)
            below = figure.add_subplot(grid[3 * row + 1, column], sharex=axes)
            _draw_active(below, reference)
            _draw_shares(figure.add_subplot(grid[3 * row + 2, column]), arms)
            if column == 0:
                axes.set_ylabel("swarm throughput, tokens/s")
                below.set_ylabel("active\nservers")
        figure.suptitle("Throughput of the weakest block while servers come and go")
        put_caption(figure, _caption(scenarios, info))
    return figure


def _title(scenario: str, samples: list[Row], info: Mapping[str, Any]) -> str:
    """With the number of servers, where it stays the same once all have come."""
    counts = {row["n_active"] for row in samples[len(samples) // 2 :]}
    size = f"{counts.pop()} servers, " if len(counts) == 1 else ""
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
    value = "optimal_tps" if arm == OPTIMAL else "swarm_tps"
    hours, tps = _thinned(part.balance, value)
    # markers of different arms at different times, so that lines on top of each other can be told apart
    marked = slice(style.order % 8, None, 8)
    axes.plot(
        hours, tps, color=style.color, linestyle=style.line, marker=style.marker, markevery=marked, markersize=3.5,
        linewidth=1.6 if arm == "swarmlab" else 1.0, zorder=2 + style.order,
    )  # fmt: skip
    draw_grid(axes)
    axes.set_ylim(bottom=0)


def _draw_active(axes: Axes, part: Part) -> None:
    axes.plot(*_thinned(part.balance, "n_active"), color="0.3", linewidth=1.0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("simulated hours")
    draw_grid(axes)


def _draw_shares(axes: Axes, arms: Mapping[str, Mapping[str, Any]]) -> None:
    """A table that is also the legend."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(arms), -1)
    columns = (
        (0.39, "share of bound\n(95 %)"), (0.6, "over\noracle"), (0.7, "time\nat 0"), (0.81, "moves"),
        (0.9, "capacity\nlost"),
    )  # fmt: skip
    for x, words in columns:
        axes.text(x, -0.35, words, fontsize=SMALL, color="0.3", va="bottom")
    for line, (arm, metrics) in enumerate(arms.items()):
        style, y = style_of(arm), line + 0.35
        axes.plot(
            [0.0, 0.035, 0.07], [y] * 3, color=style.color, linestyle=style.line, marker=style.marker,
            markevery=[1], markersize=4,
        )  # fmt: skip
        cells = (
            "1" if arm == OPTIMAL else _share(metrics),
            "-" if arm == OPTIMAL else number(metrics["swarm_tps_over_oracle"], ".2f"),
            number(metrics["zero_throughput_share"], ".1%"),
            "-" if arm == OPTIMAL else number(metrics["moves"], ".0f"),
            "-" if arm == OPTIMAL else number(metrics["capacity_lost_share"], ".1%"),
        )
        axes.text(0.09, y, style.label, va="center", fontsize=SMALL)
        for (x, _), words in zip(columns, cells, strict=True):
            axes.text(x, y, words, va="center", fontsize=SMALL)


def _share(metrics: Mapping[str, Any]) -> str:
    share = number(metrics["swarm_tps_over_optimal_mean"], ".1%")
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
    text = (
        f"Curves: the first of n = {repeats} population(s), means over stretches of time; numbers: means over all of "
        "them, after the warm-up. Throughput is what servers really serve, not what they announce. "
        "Upper bound: linear relaxation for the servers present, all moves free. The oracle pays for its reloads, but "
        "knows at once what is so and who leaves within ten minutes; it is no bound. "
        "Capacity lost: share of all servers' blocks times tokens/s that was out of service while reloading. "
    )
    return text + provenance(info)


def view_figure(rows: Iterable[Row], reloads: Iterable[Row], info: Mapping[str, Any]) -> Figure:
    """The report's swarm as it was seen and as it was, and below what each arm reloads because of that.

    :param rows: ``blocks`` with ``seen_tps``, ``was_tps`` and ``reported_tps``
    :param reloads: of the scenario in which the records are back at the next look
    """
    rows, reloads = list(rows), list(reloads)
    with rc_context(LOOK):
        figure = Figure(figsize=(8.0, 5.2), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(3, 2), sharex=True)
        blocks = np.array([row["block"] for row in rows])
        for name, label, color, line in (
            ("was_tps", "as it was", "#0072B2", "-"),
            ("seen_tps", "as it was seen (records of server S4 missing)", "#D55E00", "--"),
        ):
            values = [row[name] for row in rows]
            above.step(
                blocks,
                values,
                where="mid",
                color=color,
                linestyle=line,
                label=f"{label}: min {min(values):,.0f}",
            )
        above.plot(
            blocks,
            [row["reported_tps"] for row in rows],
            "k.",
            markersize=3,
            label="as published in the report",
        )
        above.set_ylabel("throughput of a block, tokens/s")
        above.set_ylim(bottom=0)
        above.legend(loc="lower right", fontsize=SMALL)
        above.set_title("Blocks of Llama-65B in the public swarm of July 2023", loc="left")
        _draw_reloads(
            below, reloads, [arm for arm in info["arms"] if arm not in {row["arm"] for row in reloads}]
        )
        below.set_xlabel("block")
        below.set_xlim(-0.5, len(rows) - 0.5)
        figure.suptitle("The imbalance was an artefact of missing records")
        text = (
            "Below: what a server loads if it checks while the records are missing and they are back at its next "
            "look (hatched: what it held already). Each server alone, the others stay; nothing is random. "
            "Published throughput: quoted from the report. "
        )
        put_caption(figure, text + provenance(info))
    return figure


def _draw_reloads(axes: Axes, reloads: list[Row], idle: list[str]) -> None:
    names = f" (none with {' and '.join(style_of(arm).label for arm in idle)})" if idle else ""
    axes.set_title(f"Reloads that follow{names}", loc="left")
    labels = []
    for line, row in enumerate(reloads):
        style, width = style_of(row["arm"]), row["new_end"] - row["new_start"]
        hatch = "////" if row["no_op"] else None
        axes.barh(
            line,
            width,
            left=row["new_start"] - 0.5,
            height=0.7,
            color="white",
            edgecolor=style.color,
            hatch=hatch,
        )
        words = f"{row['out_of_service_s'] / 60:.0f} min" + (", for nothing" if row["no_op"] else "")
        axes.text(row["new_end"] + 0.5, line, words, va="center", fontsize=SMALL)
        labels.append(f"{style.label}: {row['server']}")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
