"""How every arm ended in every scenario, as a matrix: a sign, a word and the seconds to the next right token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from swarmlab.analysis.failover import worst
from swarmlab.analysis.plots.look import LOOK, SMALL, provenance, put_caption
from swarmlab.analysis.stats import median
from swarmlab.analysis.style import OUTCOME_SIGNS, style_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from swarmlab.analysis.claim_numbers import Runs

    Cells = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]

# light enough for black words; the signs and words say the same
FILLS: dict[str | None, Any] = {
    "identical": {"facecolor": "#DDEFE8"},
    "wrong": {"facecolor": "#F6D3C0", "hatch": "xxx"},
    "exception": {"facecolor": "#FBEFD0"},
    "hang": {"facecolor": "#FBEFD0", "hatch": "..."},
    None: {"facecolor": "white"},
}
ROW_INCHES = 0.21


def outcomes_figure(runs: Runs) -> Figure:
    """One row per scenario of any run, one column per arm.

    :param runs: ``run.json`` and ``summary.json`` of each
    """
    cells = _cells(runs)
    scenarios = list(dict.fromkeys(scenario for scenario, _ in cells))
    arms = list(dict.fromkeys(arm for _, arm in cells))
    with rc_context(LOOK):
        figure = Figure(
            figsize=(2.2 + 1.75 * len(arms), 1.3 + ROW_INCHES * len(scenarios)), layout="constrained"
        )
        axes = figure.add_subplot()
        for (scenario, arm), found in cells.items():
            _draw_cell(axes, arms.index(arm), scenarios.index(scenario), found)
        axes.set_xlim(0, len(arms))
        axes.set_ylim(len(scenarios), 0)
        axes.set_yticks(
            [y + 0.5 for y in range(len(scenarios))], [name.replace("_", " ") for name in scenarios]
        )
        axes.set_xticks([x + 0.5 for x in range(len(arms))], [_head(arm, cells) for arm in arms])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        figure.suptitle(
            "Every scenario and client: how it ended, and seconds from the fault to a right token"
        )
        put_caption(figure, caption(cells, runs))
    return figure


def caption(cells: Cells, runs: Runs) -> str:
    sessions = sum(metrics["sessions"] for found in cells.values() for metrics in found)
    most = max((len(found) for found in cells.values()), default=0)
    each = "one per arm and scenario" if most == 1 else f"up to {most} per arm and scenario"
    seconds = "those of one session each" if most == 1 else "medians"
    others = [str(info["id"]) for info, _ in runs[1:]]
    return (
        f"n = {sessions} sessions, {each}. {provenance(runs[0][0])} "
        + (f"With {', '.join(others)}. " if others else "")
        + "= identical: all tokens, and hidden states within the tolerance of a failure-free run. \u2260 wrong: some "
        "are not, without a word. ! exception: the session raised. Percent: tokens that are right, where not all are. "
        f"Of sessions that ended differently the worst is shown, and how many ended so. Seconds are {seconds}."
    )


def _cells(runs: Runs) -> Cells:
    """Scenario and arm to the metrics of every run that has them."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for _, summary in runs:
        for scenario, arms in summary["scenarios"].items():
            for arm, metrics in arms.items():
                cells.setdefault((scenario, arm), []).append(metrics)
    return cells


def _head(arm: str, cells: Cells) -> str:
    ends = [metrics["outcome"] for (_, name), found in cells.items() if name == arm for metrics in found]
    return f"{style_of(arm).label}\n{ends.count('identical')} of {len(ends)} identical"


def _draw_cell(axes: Axes, x: int, y: int, found: Sequence[Mapping[str, Any]]) -> None:
    ends = [metrics["outcome"] for metrics in found]
    outcome, n = worst(ends), len(found)
    ratio = median(metrics["tokens_identical_ratio"] for metrics in found if metrics["outcome"] == outcome)
    seconds = median(metrics["fault_to_correct_s"] for metrics in found)
    fill: Any = {"edgecolor": "white", "linewidth": 1.2, **FILLS.get(outcome, FILLS[None])}
    axes.add_patch(Rectangle((x, y), 1, 1, **fill))
    words = f"{OUTCOME_SIGNS.get(outcome, '?')} {outcome or 'unknown'}"
    if ends.count(outcome) < n:
        words += f" in {ends.count(outcome)} of {n}"
    if outcome != "identical" and ratio is not None:
        words += f" ({ratio:.0%})" if ratio < 1 else " (hidden states)"
    box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}
    look: Any = {"va": "center", "fontsize": SMALL, "bbox": box if "hatch" in fill else None}
    axes.text(x + 0.04, y + 0.5, words, weight="bold" if outcome == "wrong" else "normal", **look)
    if outcome == "identical" and seconds is not None:
        axes.text(x + 0.96, y + 0.5, f"{seconds:.2g} s", ha="right", **look)
