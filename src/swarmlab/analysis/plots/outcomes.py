"""How every arm ended in every scenario, as a matrix: a sign, a word and the seconds to the next right token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from swarmlab.analysis.plots.look import LOOK, SMALL, provenance, put_caption
from swarmlab.analysis.style import OUTCOME_SIGNS, style_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

# light enough for black words; the signs and words say the same
FILLS: dict[str | None, Any] = {
    "identical": {"facecolor": "#DDEFE8"},
    "wrong": {"facecolor": "#F6D3C0", "hatch": "xxx"},
    "exception": {"facecolor": "#FBEFD0"},
    "hang": {"facecolor": "#FBEFD0", "hatch": "..."},
    None: {"facecolor": "white"},
}
ROW_INCHES = 0.21


def outcomes_figure(scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> Figure:
    """One row per scenario, one column per arm.

    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    arms = list(dict.fromkeys(arm for cells in scenarios.values() for arm in cells))
    with rc_context(LOOK):
        figure = Figure(
            figsize=(2.2 + 1.75 * len(arms), 1.3 + ROW_INCHES * len(scenarios)), layout="constrained"
        )
        axes = figure.add_subplot()
        for y, cells in enumerate(scenarios.values()):
            for x, arm in enumerate(arms):
                if arm in cells:
                    _draw_cell(axes, x, y, cells[arm])
        axes.set_xlim(0, len(arms))
        axes.set_ylim(len(scenarios), 0)
        axes.set_yticks(
            [y + 0.5 for y in range(len(scenarios))], [name.replace("_", " ") for name in scenarios]
        )
        axes.set_xticks([x + 0.5 for x in range(len(arms))], [_head(arm, scenarios) for arm in arms])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        figure.suptitle(
            "Every scenario and client: how it ended, and seconds from the fault to a right token"
        )
        put_caption(figure, caption(scenarios, info))
    return figure


def caption(scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> str:
    sessions = sum(metrics["sessions"] for arms in scenarios.values() for metrics in arms.values())
    return (
        f"n = {sessions} sessions, one per arm and scenario. {provenance(info)} = identical: all tokens, and hidden "
        "states within the tolerance of a failure-free run. \u2260 wrong: some are not, without a word. ! exception: "
        "the session raised. Percent: tokens that are right, where not all are. Seconds are those of one session each."
    )


def _head(arm: str, scenarios: Mapping[str, Mapping[str, Any]]) -> str:
    ends = [cells[arm]["outcome"] for cells in scenarios.values() if arm in cells]
    return f"{style_of(arm).label}\n{ends.count('identical')} of {len(ends)} identical"


def _draw_cell(axes: Axes, x: int, y: int, metrics: Mapping[str, Any]) -> None:
    outcome, ratio, seconds = (
        metrics[name] for name in ("outcome", "tokens_identical_ratio", "fault_to_correct_s")
    )
    fill: Any = {"edgecolor": "white", "linewidth": 1.2, **FILLS.get(outcome, FILLS[None])}
    axes.add_patch(Rectangle((x, y), 1, 1, **fill))
    words = f"{OUTCOME_SIGNS.get(outcome, '?')} {outcome or 'unknown'}"
    if outcome != "identical" and ratio is not None:
        words += f" ({ratio:.0%})" if ratio < 1 else " (hidden states)"
    box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}
    look: Any = {"va": "center", "fontsize": SMALL, "bbox": box if "hatch" in fill else None}
    axes.text(x + 0.04, y + 0.5, words, weight="bold" if outcome == "wrong" else "normal", **look)
    if outcome == "identical" and seconds is not None:
        axes.text(x + 0.96, y + 0.5, f"{seconds:.2g} s", ha="right", **look)
