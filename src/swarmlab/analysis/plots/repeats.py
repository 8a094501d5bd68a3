"""Metrics of several runs, by arm, with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context, ticker
from matplotlib.figure import Figure

from swarmlab.analysis.claim_numbers import Runs, over_the_same_scenarios
from swarmlab.analysis.plots.look import LOOK, draw_estimate, draw_grid, provenance, put_caption
from swarmlab.analysis.stats import estimate, finite
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 2  # runs with a panel's metric, for it to be drawn


@dataclass(frozen=True)
class Panel:
    """One metric.

    :param measured: of each run arm to value, None for one that never got there; without arms that it did not have
    :param words: what it is, with its unit; "" where all panels have the same below them
    :param computed: of each run the arms whose value was not measured; empty where all were
    :param scenario: whose it is; "" for one of the arms over all scenarios
    """

    title: str
    measured: list[dict[str, float | None]]
    words: str = ""
    computed: list[set[str]] = field(default_factory=list)
    scenario: str = ""

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for of in self.measured for arm in of))

    @property
    def has_numbers(self) -> bool:
        """False where no arm has one, as in a scenario without a failure: that would read as if none recovered."""
        return any(value is not None for of in self.measured for value in of.values())

    def of(self, arm: str) -> list[float | None]:
        return [of[arm] for of in self.measured if arm in of]

    def n_computed(self, arm: str) -> int:
        return sum(arm in of for of in self.computed)

    @property
    def was_repeated(self) -> bool:
        return sum(bool(of) for of in self.measured) >= LEAST


def scenario_panels(runs: Runs, metric: str) -> list[Panel]:
    """One for each scenario of any run."""
    names = dict.fromkeys(name for _, summary in runs for name in summary["scenarios"])
    return [
        Panel(
            name.replace("_", " "),
            [_values(summary["scenarios"].get(name, {}), metric) for _, summary in runs],
            scenario=name,
        )
        for name in names
    ]


def arms_panels(runs: Runs, metrics: Mapping[str, str]) -> list[Panel]:
    """One for each metric of the arms over all scenarios, of the runs that had the same ones.

    :param metrics: name to words, with the unit
    """
    alike = [summary["arms"] for info, summary in runs if over_the_same_scenarios(runs[0][0], info)]
    return [Panel("", [_values(arms, metric) for arms in alike], words) for metric, words in metrics.items()]


def repeats_figure(
    runs: Runs, panels: Sequence[Panel], title: str, *, words: str = "", log: bool = False,
    names: Mapping[str, str] | None = None, line_at: float | None = None,
) -> Figure | None:  # fmt: skip
    """A line per arm: every run, their median and its bootstrap interval; None if nothing was repeated.

    :param words: what all panels show, with its unit
    :param log: for times that differ by orders of magnitude
    :param names: of arms, where they are not called as elsewhere
    :param line_at: a value that all are compared with: a vertical line; ``words`` say what it is
    """
    shown = [panel for panel in panels if panel.has_numbers and panel.was_repeated]
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    lines = max(len(panel.arms) for panel in shown)
    with rc_context(LOOK):
        own = any(panel.words for panel in shown)
        size = (1.6 + 2.7 * columns, 1.0 + rows * ((0.7 if own else 0.5) + 0.19 * lines))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=not own).ravel()
        for axes, panel in zip(grid, shown, strict=False):
            _draw(axes, panel, names or {})
            # panels that share an axis show the farthest value of any of them
            _limit(axes, [panel] if own else shown, log=log)
            if line_at is not None:
                axes.axvline(line_at, color="0.3", linewidth=0.9, zorder=0)
        for axes in grid[len(shown) - columns : len(shown)]:  # the lowest of each column, also of a short one
            axes.tick_params(labelbottom=True)
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        figure.supxlabel(words, fontsize=LOOK["font.size"])
        figure.suptitle(title)
        put_caption(figure, repeats_caption(runs, shown))
    return figure


def _values(arms: Mapping[str, Mapping[str, Any]], metric: str) -> dict[str, float | None]:
    return {arm: metrics[metric] for arm, metrics in arms.items() if metric in metrics}


def _draw(axes: Axes, panel: Panel, names: Mapping[str, str]) -> None:
    counts = {arm: len(panel.of(arm)) for arm in panel.arms}
    labels = []
    for line, (arm, count) in enumerate(counts.items()):
        label = names.get(arm, style_of(arm).label)
        if n_computed := panel.n_computed(arm):
            label += ", computed" if n_computed == count else f", computed in {n_computed} of {count}"
        labels.append(label if len(set(counts.values())) == 1 else f"{label} (n = {count})")
        _draw_arm(axes, line, panel.of(arm), arm)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.words)
    draw_grid(axes, "x")


def _draw_arm(axes: Axes, line: int, measured: list[float | None], arm: str) -> None:
    found = estimate(measured)
    if found is None:
        axes.text(0.02, line, "never", transform=axes.get_yaxis_transform(), va="center", color="0.4")
        return
    if found.n > 1:
        each = finite(measured)
        axes.plot(each, [line] * len(each), linestyle="none", marker="|", markersize=9, color="0.6", zorder=1)
    draw_estimate(axes, line, found, style_of(arm), horizontal=True)
    missing = sum(value is None for value in measured)
    if missing:
        axes.annotate(f"never in {missing}", (found.value, line), xytext=(6, 4), textcoords="offset points")


def _limit(axes: Axes, panels: Sequence[Panel], *, log: bool) -> None:
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        return
    known = finite(value for panel in panels for of in panel.measured for value in of.values())
    if min(known, default=0.0) < 0:
        axes.axvline(0, color="0.3", linewidth=0.8)
    else:
        most = max(known, default=0.0) or 1.0  # nothing but zeros would get an axis around 0
        axes.set_xlim(-0.04 * most, 1.08 * most)  # with room for a marker at 0


def repeats_caption(runs: Runs, panels: Sequence[Panel]) -> str:
    """What lies behind the marks of panels."""
    counts = sorted({len(panel.of(arm)) for panel in panels for arm in panel.arms})
    n = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    own = (
        "" if counts[0] == counts[-1] == len(runs) else f" of each arm, of the {len(runs)} that are published"
    )
    ids, seeds = [info["id"] for info, _ in runs], sorted({info["seed"] for info, _ in runs})
    return (
        f"Medians over n = {n} runs{own} (seeds {', '.join(map(str, seeds))}), with a bootstrap interval of 95 %; "
        f"ticks: each run; hollow: only one has the number. The first run: {provenance(runs[0][0])} "
        f"The others: {', '.join(ids[1:])}."
    )
