"""Table 1 as a figure: per arm and length how much of the failure-free rate is left, the paper's beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmlab.analysis.failure_rates_grid import How
from swarmlab.analysis.paper_table1 import NAMES, RATES, paper_cell, paper_ratio
from swarmlab.analysis.plots.look import LOOK, draw_grid, provenance, put_caption, put_legend
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL = 6.5  # points
LINE: dict[str, Any] = {"linewidth": 1.2, "zorder": 3}
PAPERS: dict[str, Any] = {"color": "0.5", "linestyle": (0, (4, 2)), "linewidth": 1.2, "zorder": 2}
PAPERS_MARK: dict[str, Any] = {"marker": "h", "markersize": 7.5}  # no arm of this figure has it
NUMBERS_AT, TOP = 1.27, 1.42  # above all points


def failure_rates_figure(scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> Figure:
    """One panel per length and arm.

    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    cells = [(arm, cell) for arms in scenarios.values() for arm, cell in arms.items()]
    arms = list(dict.fromkeys(arm for arm, _ in cells))
    lengths = sorted({cell["length_tokens"] for _, cell in cells})
    rates = sorted({*RATES, *(cell["failure_probability"] for _, cell in cells)})
    with rc_context(LOOK):
        size = (1.2 + 2.1 * len(arms), 1.5 + 2.0 * len(lengths))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(lengths), len(arms), sharex=True, sharey=True, squeeze=False)
        for row, length in enumerate(lengths):
            for column, arm in enumerate(arms):
                axes = panels[row][column]
                mine = [cell for name, cell in cells if name == arm and cell["length_tokens"] == length]
                _draw_paper(axes, arm, length, rates)
                _draw_ours(axes, arm, mine, rates)
                _dress(axes, rates)
                axes.set_title(_title(arm, length), loc="left")
        figure.supxlabel("probability that one send of activations fails", fontsize=LOOK["font.size"])
        figure.supylabel("steps/s relative to failure-free", fontsize=LOOK["font.size"])
        figure.suptitle("Unreliable servers: what is left of each arm's own speed")
        put_caption(figure, caption(cells, info), put_legend(figure, _legend(arms), 5))
    return figure


def caption(cells: Sequence[tuple[str, Mapping[str, Any]]], info: Mapping[str, Any]) -> str:
    """What a reader must know to judge the figure."""
    sessions = sum(cell["sessions"] for _, cell in cells)
    return (
        f"n = {sessions} generations on four stages, one server each. {provenance(info)} "
        "Numbers at the top: our steps/s; 0 is a generation that did not finish. petals is set beside the rate of "
        "restart, which without failures is the same. Paper: arXiv "
        "2312.08361, Table 1 (BLOOM-7.1B, four GTX 1080 Ti), quoted; only filled hexagons are confirmed by a second "
        "source. Computed: closed form from the steps and failures measured in the other cells."
    )


def _title(arm: str, length: int) -> str:
    paper = f"paper: {NAMES[arm]}" if arm in NAMES else "not in the paper"
    return f"{style_of(arm).label}, {length:,} tokens\n({paper})"


def _draw_ours(axes: Axes, arm: str, mine: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> None:
    style = style_of(arm)
    points = [
        (rates.index(cell["failure_probability"]), cell["ratio_to_failure_free"] or 0.0, cell)
        for cell in mine
    ]
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    axes.plot(xs, ys, color=style.color, linestyle=style.line, **LINE)
    for x, y, cell in points:
        if cell["steps_per_s"] is None:
            marker, face, words = "x", style.color, ""
        else:
            simulated = cell["how"] == How.SIMULATED
            marker, face = style.marker, "white" if simulated else style.color
            words = f"{'~' if simulated else ''}{cell['steps_per_s']:.3g}"
        axes.plot([x], [y], marker=marker, color=style.color, markerfacecolor=face, markersize=5.5, zorder=4)
        axes.text(x, NUMBERS_AT, words, ha="center", va="center", fontsize=SMALL)


def _draw_paper(axes: Axes, arm: str, length: int, rates: Sequence[float]) -> None:
    points = []
    for x, p in enumerate(rates):
        ratio, cell = paper_ratio(arm, length, p), paper_cell(arm, length, p)
        if ratio is not None and cell is not None:
            points.append((x, ratio, cell))
    axes.plot([x for x, _, _ in points], [y for _, y, _ in points], **PAPERS)
    for x, y, cell in points:
        face = "0.5" if cell.source == "confirmed" else "white"
        axes.plot([x], [y], color="0.5", markerfacecolor=face, zorder=2, **PAPERS_MARK)


def _dress(axes: Axes, rates: Sequence[float]) -> None:
    axes.set_xticks(range(len(rates)), [f"{p:g}" for p in rates])
    axes.set_xlim(-0.4, len(rates) - 0.6)
    axes.set_ylim(-0.08, TOP)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    draw_grid(axes)


def _legend(arms: Sequence[str]) -> list[Line2D]:
    """What is filled and what is hollow; which arm it is, panels say."""
    first = style_of(arms[0])
    ours: Any = {"color": first.color, "marker": first.marker, "markersize": 5.5, "linestyle": "none"}
    return [
        Line2D([], [], **ours, label="ours, measured (filled)"),
        Line2D([], [], **ours, markerfacecolor="white", label="ours, computed (hollow, ~)"),
        Line2D([], [], **{**ours, "marker": "x"}, label="ours, did not finish"),
        Line2D([], [], **PAPERS, **PAPERS_MARK, label="paper, confirmed"),
        Line2D([], [], **PAPERS, **PAPERS_MARK, markerfacecolor="white", label="paper, recalled"),
    ]
