"""Draws what it is given. Nothing in a figure is told by colour alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context, ticker
from matplotlib.figure import Figure

from swarmlab.analysis.failover import ENDED_EARLY
from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption
from swarmlab.analysis.style import OUTCOME_SIGNS, style_of
from swarmlab.analysis.tables import number, seconds_to_correct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from swarmlab.analysis.evidence import Evidence, Part
    from swarmlab.analysis.metrics import Row
    from swarmlab.analysis.style import ArmStyle

BEFORE, AFTER = 8, 20  # tokens shown around the failure
# Columns beside each panel: left edge as a share of the width, and heading.
COLUMNS = (
    (0.0, "arm"),
    (0.42, "outcome"),
    (0.62, "tokens\nright"),
    (0.74, "max\ndiff"),
    (0.87, "fault to right\ntoken, s"),
)


def failover_figure(
    evidence: Evidence, scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any],
    of_scenarios: int | None = None,
) -> Figure:  # fmt: skip
    """Seconds per token around the failure, one panel per scenario, with how each arm ended beside it.

    :param scenarios: those to show, as in ``summary.json``
    :param info: ``run.json``, for the caption
    :param of_scenarios: how many the run has; None means no others
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(9.0, 1.2 + 1.5 * len(scenarios)), layout="constrained")
        grid = figure.add_gridspec(len(scenarios), 2, width_ratios=(5, 4.6))
        panels: list[Axes] = []
        for index, (scenario, arms) in enumerate(scenarios.items()):
            shared = panels[0] if panels else None
            panels.append(figure.add_subplot(grid[index, 0], sharex=shared, sharey=shared))
            draw_latency(panels[-1], evidence, scenario, arms)
            panels[-1].tick_params(labelbottom=index == len(scenarios) - 1)
            draw_outcomes(figure.add_subplot(grid[index, 1]), arms, header=index == 0)
        panels[0].set_xlim(-BEFORE - 0.5, AFTER + 0.5)
        low, high = panels[0].get_ylim()
        panels[0].set_ylim(low / 5, high * 2)  # room below for the rows of crosses
        panels[-1].set_xlabel("tokens since the failure (0: the first token after it)")
        figure.supylabel("seconds per token (log scale)", fontsize=LOOK["font.size"])
        figure.suptitle("A server dies in mid-generation: how long each token takes, and whether it is right")
        put_caption(figure, caption(scenarios, info, of_scenarios or len(scenarios)))
    return figure


def draw_latency(axes: Axes, evidence: Evidence, scenario: str, arms: Mapping[str, Any]) -> None:
    """Seconds per token of every arm of one scenario, against the token index relative to the failure."""
    title, crossed = scenario.replace("_", " "), 0
    parts = [evidence.part(scenario, arm) for arm in sorted(arms, key=lambda arm: style_of(arm).order)]
    for part in parts:
        if not part.failures:
            continue
        title = f"{scenario.replace('_', ' ')}: {_what_failed(part.failures[0].first)}"
        _draw_steps(axes, part)
        _mark_end(axes, part)
        crossed += _mark_wrong(axes, part, crossed)
    axes.axvline(-0.5, color="0.5", linewidth=0.8, linestyle=(0, (1, 1)), zorder=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    draw_grid(axes)
    axes.set_title(title, loc="left")


def draw_outcomes(axes: Axes, arms: Mapping[str, Mapping[str, Any]], *, header: bool) -> None:
    """A table that is also the legend: the arm's line, its outcome, what was right, seconds to recover."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(arms) + 0.2, -0.6)
    if header:
        for x, words in COLUMNS:
            axes.text(x, -0.4, words, fontsize=SMALL, color="0.3", va="bottom")
    for line, (arm, metrics) in enumerate(arms.items()):
        style, outcome, y = style_of(arm), metrics["outcome"], line + 0.3
        axes.plot([0.01, 0.05, 0.09], [y] * 3, **_look(style), markevery=[1], markersize=4.5)
        axes.text(0.12, y, style.label, va="center")
        cells = (
            f"{OUTCOME_SIGNS.get(outcome, '?')} {outcome or 'unknown'}",
            number(metrics["tokens_identical_ratio"], ".0%"),
            number(metrics["max_abs_diff"], ".2g"),
            seconds_to_correct(metrics, ".2g"),
        )
        for (x, _), words in zip(COLUMNS[1:], cells, strict=True):
            axes.text(x, y, words, va="center", weight="bold" if outcome == "wrong" else "normal")


def caption(scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any], of_scenarios: int) -> str:
    """What a reader must know to judge the figure: n, seed, model, hardware, world, and how to read it."""
    sessions = sum(metrics["sessions"] for arms in scenarios.values() for metrics in arms.values())
    part = (
        f"{len(scenarios)} of the run's {of_scenarios} scenarios; all are in the matrix of outcomes. "
        if of_scenarios > len(scenarios)
        else ""
    )
    text = (
        f"{part}n = {sessions} sessions, one per arm and scenario. "
        "Curves: seconds of the client's step. Dotted vertical line: the failure. Crosses: tokens that differ from the "
        "failure-free run. Open marker: the session ended there without a token, after that many seconds. "
        "Max diff: of hidden states, from the failure-free run; -: not as many (rows or positions are missing). "
        "Fault to right token: seconds from before the fault is ordered to the first token after it that is right. "
        "That includes to order and to confirm it, while the client waits, so it is more than its step takes. Never: "
        "none came, or the session ended wrong. "
    )
    return text + provenance(info)


def _draw_steps(axes: Axes, part: Part) -> None:
    shown = [row for row in part.steps if _visible(row, part) and row["seconds"]]
    x, y = [_since_failure(row, part) for row in shown], [row["seconds"] for row in shown]
    order = style_of(part.arm).order
    # Markers of different arms at different tokens, so that lines on top of each other can be told apart.
    marked = [index for index, at in enumerate(x) if at == 0 or (at + order) % 3 == 0]
    look = _look(style_of(part.arm))
    axes.plot(x, y, **look, markevery=marked, markersize=4, linewidth=1.1, zorder=2 + order)


def _mark_wrong(axes: Axes, part: Part, line: int) -> bool:
    """One row of crosses at the bottom, above ``line`` others; False if every token is right."""
    reference = dict(enumerate(part.reference.tokens))
    wrong = [row for row in part.steps if tuple(row["token_ids"] or ()) != reference.get(row["token"])]
    x = [_since_failure(row, part) for row in wrong if _visible(row, part)]
    if not x:
        return False
    across, y = axes.get_xaxis_transform(), 0.07 + 0.13 * line
    axes.plot(x, [y] * len(x), linestyle="none", marker="x", color="black", markersize=4.5, transform=across)
    words = f"{style_of(part.arm).label} wrong"
    axes.text(-0.8, y, words, transform=across, fontsize=SMALL, ha="right", va="center")
    return True


def _mark_end(axes: Axes, part: Part) -> None:
    """Where a session ended without its tokens: how long it tried, and with what."""
    if part.outcome is None or part.outcome["outcome"] not in ENDED_EARLY:
        return
    last = part.steps[-1] if part.steps else None
    since_s = max(part.failures[0].first["t"], last["t"] if last else 0.0)
    x, waited_s = (_since_failure(last, part) + 1 if last else 0), max(part.outcome["t"] - since_s, 1e-3)
    style = style_of(part.arm)
    if last is not None:
        axes.plot(
            [x - 1, x], [last["seconds"], waited_s], color=style.color, linestyle=style.line, linewidth=1.1
        )
    axes.plot(
        [x], [waited_s], marker=style.marker, markerfacecolor="white", color=style.color, markersize=6, zorder=19
    )  # fmt: skip
    error = (part.outcome["error"] or "").partition(": ")[2]  # without the name of its type
    shown = f" ({textwrap.shorten(error, 32, placeholder=' ...')})" if error else ""
    words = f"{style.label}: {part.outcome['outcome']} after {waited_s:.3g} s{shown}"
    axes.annotate(
        words, (x, waited_s), xytext=(6, 0), textcoords="offset points", va="center", fontsize=SMALL
    )


def _since_failure(row: Row, part: Part) -> int:
    return row["token"] - (part.failures[0].first["at_token"] or 0)


def _visible(row: Row, part: Part) -> bool:
    return row["token"] is not None and -BEFORE <= _since_failure(row, part) <= AFTER


def _look(style: ArmStyle) -> dict[str, Any]:
    return {"color": style.color, "linestyle": style.line, "marker": style.marker}


def _what_failed(confirmed: Row) -> str:
    span = f"blocks {confirmed['span_start']}:{confirmed['span_end']}"
    verb = {"kill": "killed", "stop": "stopped", "cut": "cut off", "leave": "left", "move": "moved"}[
        confirmed["fault"]
    ]
    token = confirmed["at_token"]
    return f"{span} {verb} " + (f"before token {token}" if token else "while the prompt is processed")
