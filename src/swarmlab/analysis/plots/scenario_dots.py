"""One metric of many scenarios over several runs: a row for each scenario, a marker with its spread for each arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import rc_context, ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import blended_transform_factory

from swarmlab.analysis.plots.look import LOOK, SMALL, draw_estimate, draw_grid, put_caption, put_legend
from swarmlab.analysis.plots.repeats import repeats_caption
from swarmlab.analysis.stats import estimate, finite
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from swarmlab.analysis.claim_numbers import Runs
    from swarmlab.analysis.plots.repeats import Panel

ROW_INCHES = 0.27
SPREAD = 0.62  # of a row, over which its arms are laid
# where those stand that never got there, each in its column, in widths of the panel
NEVER, NEXT = 1.02, 0.018


def scenario_dots_figure(runs: Runs, panels: Sequence[Panel], title: str, words: str) -> Figure | None:
    """None if nothing was repeated.

    :param panels: of times, one for each scenario
    :param words: what is shown, with its unit
    """
    shown = [panel for panel in panels if panel.has_numbers]
    if not any(panel.was_repeated for panel in shown):
        return None
    arms = list(dict.fromkeys(arm for panel in shown for arm in panel.arms))
    with rc_context(LOOK):
        figure = Figure(figsize=(8.5, 1.2 + ROW_INCHES * len(shown)), layout="constrained")
        axes = figure.add_subplot()
        for row, panel in enumerate(shown):
            for place, arm in enumerate(arms):
                y = row + SPREAD * ((place + 0.5) / len(arms) - 0.5)
                _draw_arm(axes, y, arm, panel.of(arm), NEVER + NEXT * place)
        _dress(axes, [panel.title for panel in shown], words, NEVER + NEXT * (len(arms) - 1) / 2)
        figure.suptitle(title)
        legend = put_legend(figure, [_handle(arm) for arm in arms], len(arms))
        never = " At the right: in a run the arm never got there, or ended wrong."
        put_caption(figure, repeats_caption(runs, shown) + never, legend)
    return figure


def _draw_arm(axes: Axes, y: float, arm: str, measured: list[float | None], never: float) -> None:
    style, found = style_of(arm), estimate(measured)
    if found is not None:
        each = finite(measured)
        ticks = each if len(each) > 1 else []
        axes.plot(ticks, [y] * len(ticks), linestyle="none", marker="|", markersize=5, color="0.6", zorder=1)
        draw_estimate(axes, y, found, style, horizontal=True)
    if None in measured:
        beside = blended_transform_factory(axes.transAxes, axes.transData)
        look: Any = {"color": style.color, "marker": style.marker, "markersize": 5, "clip_on": False}
        axes.plot([never], [y], linestyle="none", transform=beside, **look)


def _dress(axes: Axes, names: Sequence[str], words: str, never: float) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for row in range(1, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.96", zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(words)
    axes.text(never, 1.0, "never", transform=axes.transAxes, ha="center", va="bottom", fontsize=SMALL)
    draw_grid(axes, "x")


def _handle(arm: str) -> Line2D:
    style = style_of(arm)
    return Line2D([], [], color=style.color, marker=style.marker, linestyle="none", label=style.label)
