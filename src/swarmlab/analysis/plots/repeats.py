"""One metric of several runs, by scenario and arm, with its spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.plots.look import LOOK, draw_estimate, draw_grid, provenance, put_caption
from swarmlab.analysis.stats import estimate
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Runs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # run.json and summary.json of each


def repeats_figure(
    runs: Runs,
    metric: str,
    words: str,
    title: str,
    *,
    log: bool = False,
    names: Mapping[str, str] | None = None,
) -> Figure | None:
    """A panel per scenario that was repeated, a line per arm: median over the runs and its bootstrap interval; None if
    none was.

    :param metric: of ``summary.json``, by scenario and arm
    :param words: what it is, with its unit
    :param log: for times that differ by orders of magnitude
    :param names: of arms, where they are not called as elsewhere
    """
    times = Counter(scenario for _, summary in runs for scenario in summary["scenarios"])
    scenarios = {name: arms for name, arms in runs[0][1]["scenarios"].items() if times[name] > 1}
    if not scenarios:
        return None
    columns = min(len(scenarios), 3)
    rows = -(-len(scenarios) // columns)
    arms = max(len(measured) for measured in scenarios.values())
    with rc_context(LOOK):
        size = (1.6 + 2.7 * columns, 1.0 + rows * (0.5 + 0.19 * arms))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for axes, scenario in zip(panels, scenarios, strict=False):
            _draw_scenario(axes, runs, scenario, metric, names or {})
            axes.set_title(scenario.replace("_", " "), loc="left")
            if log:
                axes.set_xscale("log")
            else:
                axes.set_xlim(left=0)
        for axes in panels[len(scenarios) :]:
            axes.set_axis_off()
        figure.supxlabel(words, fontsize=LOOK["font.size"])
        figure.suptitle(title)
        put_caption(figure, _caption(runs))
    return figure


def _draw_scenario(axes: Axes, runs: Runs, scenario: str, metric: str, names: Mapping[str, str]) -> None:
    arms = [arm for arm, found in runs[0][1]["scenarios"][scenario].items() if metric in found]
    for line, arm in enumerate(arms):
        found_in = [summary["scenarios"].get(scenario, {}).get(arm, {}) for _, summary in runs]
        measured = [metrics[metric] for metrics in found_in if metric in metrics]
        found = estimate(measured)
        if found is None:
            axes.text(0.02, line, "never", transform=axes.get_yaxis_transform(), va="center", color="0.4")
            continue
        draw_estimate(axes, line, found, style_of(arm), horizontal=True)
        missing = sum(value is None for value in measured)
        if missing:
            axes.annotate(
                f"never in {missing}", (found.value, line), xytext=(6, 4), textcoords="offset points"
            )
    axes.set_yticks(range(len(arms)), [names.get(arm, style_of(arm).label) for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    draw_grid(axes, "x")


def _caption(runs: Runs) -> str:
    ids, seeds = [info["id"] for info, _ in runs], sorted({info["seed"] for info, _ in runs})
    return (
        f"Medians over at most n = {len(runs)} runs (seeds {', '.join(map(str, seeds))}) with a bootstrap interval of "
        f"95 %; hollow where only one run has the number. The first run: {provenance(runs[0][0])} The others: "
        f"{', '.join(ids[1:])}."
    )
