"""Draws what simulating larger and larger swarms takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import rc_context, ticker
from matplotlib.figure import Figure

from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

PLAIN = ticker.FuncFormatter(lambda value, _: f"{value:,g}")
GOALS = ((1000, 60.0), (10_000, 900.0))  # servers, and seconds that a simulated day of them may take


def scale_figure(summary: Mapping[str, Any], info: Mapping[str, Any]) -> Figure:
    """CPU time of a simulated day and memory, both by the number of servers, in logarithms.

    :param summary: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    scenarios = summary["scenarios"]
    arms = sorted({arm for of in scenarios.values() for arm in of}, key=lambda arm: style_of(arm).order)
    with rc_context(LOOK):
        figure = Figure(figsize=(8.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for arm in arms:
            cells = [of[arm] for of in scenarios.values() if arm in of]
            grown = summary["arms"].get(arm, {}).get("cpu_growth_exponent")
            label = style_of(arm).label + ("" if grown is None else f": grows as n^{grown:.2f}")
            _draw(left, arm, cells, "cpu_s_per_day", label)
            _draw(right, arm, cells, "rss_mib", style_of(arm).label)
        sizes, seconds = zip(*GOALS, strict=True)
        words = f"goals: {' and '.join(f'{one:g} s' for one in seconds)}"
        left.plot(sizes, seconds, "_", color="0.2", markersize=18, markeredgewidth=1.5, zorder=1, label=words)
        left.set_ylabel("CPU seconds for a simulated day (log scale)")
        right.set_ylabel("memory at its largest, MiB")
        left.legend(fontsize=SMALL, loc="upper left")
        for axes in (left, right):
            axes.set_xlabel("servers (log scale)")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(PLAIN)
            draw_grid(axes, "both")
        left.set_yscale("log")
        left.yaxis.set_major_formatter(PLAIN)
        left.set_xlim(right=2 * max(cell["servers"] for of in scenarios.values() for cell in of.values()))
        right.set_ylim(bottom=0)
        figure.suptitle("Simulating a swarm: time and memory by its size")
        hours = next(iter(next(iter(scenarios.values())).values()))["simulated_s"] / 3600
        put_caption(
            figure,
            f"Each point: n = {_repeats(scenarios)} of {hours:g} simulated hours in a process of its own, times 24 / "
            f"{hours:g} for the day; of several the median. CPU time of one process on one core; other work on the "
            f"machine still adds to it. Goals: what we set out to reach. {provenance(info)}",
        )
    return figure


def _repeats(scenarios: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    return " or ".join(
        map(str, sorted({cell["repeats"] for of in scenarios.values() for cell in of.values()}))
    )


def _draw(axes: Axes, arm: str, cells: list[Mapping[str, Any]], column: str, label: str) -> None:
    style = style_of(arm)
    axes.plot(
        [cell["servers"] for cell in cells], [cell[column] for cell in cells], color=style.color, marker=style.marker,
        linestyle=style.line, label=label, markersize=4.5,
    )  # fmt: skip
