"""One metric over the settings that a multirun went through: a panel per value of one, along the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.plots.look import (
    LOOK,
    draw_estimate,
    draw_grid,
    provenance,
    put_caption,
    put_legend,
    show_zero,
)
from swarmlab.analysis.stats import Estimate
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from swarmlab.analysis.plots.repeats import Runs

APART = 0.09  # of the way between two settings, so that intervals of several arms can be told apart


@dataclass(frozen=True)
class Axis:
    """A setting that was swept.

    :param name: as in the overrides
    :param words: what it is, with ``{}`` for its value
    :param unit: what one of the shown unit is in that of the setting
    """

    name: str
    words: str
    unit: float = 1.0


def is_sweep(runs: Runs) -> bool:
    """Whether the runs were asked for with different settings, and not only with different seeds."""
    return len({frozenset(_settings(info).items()) for info, _ in runs}) > 1


def sweep_figure(runs: Runs, panels: Axis, along: Axis, scenario: str, metric: str, words: str) -> Figure:
    """A line per arm with the interval that each run states.

    :param metric: ``<metric>_mean``, ``_low`` and ``_high`` of each run
    :param words: what the metric is, with its unit
    """
    cells = {
        (_value(info, panels), _value(info, along)): summary["scenarios"][scenario] for info, summary in runs
    }
    columns, places = (sorted({key[i] for key in cells}) for i in (0, 1))
    arms = list(dict.fromkeys(arm for arms in cells.values() for arm in arms if arm != "optimal"))
    arms.sort(key=lambda arm: style_of(arm).order)
    with rc_context(LOOK):
        figure = Figure(figsize=(1.2 + 2.2 * len(columns), 3.0), layout="constrained")
        row = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
        for axes, column in zip(row, columns, strict=True):
            for number, arm in enumerate(arms):
                found = [cells.get((column, place), {}).get(arm, {}) for place in places]
                _draw(axes, arm, found, metric, (number - (len(arms) - 1) / 2) * APART)
            axes.set_title(panels.words.format(f"{column:g}"), loc="left")
            axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
            axes.set_xlim(-0.5, len(places) - 0.5)
            axes.set_ylim(0, 1)
            show_zero(axes)
            draw_grid(axes)
        row[0].set_ylabel(words)
        figure.supxlabel(along.words, fontsize=LOOK["font.size"])
        figure.suptitle("The same rules over lifetimes and load times")
        repeats = {arm["repeats"] for arms in cells.values() for arm in arms.values()}
        below = put_legend(figure, row[0].get_legend_handles_labels()[0], len(arms))
        put_caption(
            figure,
            f"{len(cells)} runs of {' or '.join(map(str, sorted(repeats)))} populations each: means over them, with "
            f"their interval of 95 %. Points are moved aside a little, to be told apart. The first run: "
            f"{provenance(runs[0][0])}",
            below,
        )
    return figure


def _draw(axes: Axes, arm: str, found: Sequence[Mapping[str, Any]], metric: str, aside: float) -> None:
    style = style_of(arm)
    known = [(x, cell) for x, cell in enumerate(found) if cell.get(f"{metric}_mean") is not None]
    values = [cell[f"{metric}_mean"] for _, cell in known]
    axes.plot(
        [x + aside for x, _ in known], values, color=style.color, linestyle=style.line, marker=style.marker,
        markersize=4.5, label=style.label,
    )  # fmt: skip
    for x, cell in known:
        spread = Estimate(
            cell[f"{metric}_mean"], cell.get(f"{metric}_low"), cell.get(f"{metric}_high"), cell["repeats"]
        )
        draw_estimate(axes, x + aside, spread, style)


def _settings(info: Mapping[str, Any]) -> dict[str, str]:
    given = (one.partition("=") for one in info["overrides"])
    return {name: value for name, _, value in given if name != "seed"}


def _value(info: Mapping[str, Any], axis: Axis) -> float:
    return float(_settings(info)[axis.name]) / axis.unit
