"""The figure of +exp=recovery_speed: every recovery beside its floor, and where the time of a recovery goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption, put_legend
from swarmlab.analysis.recovery_speed import STAGES
from swarmlab.analysis.stats import finite
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from swarmlab.analysis.recovery_speed import Record

Rows = Sequence[tuple[str, str, Mapping[str, Any]]]  # cell, arm, and its numbers

GOAL = 1.3
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
REST = "rest"
VISIBLE = 1 / 150  # of the axis: a narrower bar is a line, whatever it is filled with
LONGEST = 3.0  # times the longest bar: recoveries beyond it are told as a number
# told apart without colour: white, hatched both ways, grey
LOOKS: dict[str, Any] = {
    "detect_s": {"facecolor": "white", "hatch": "....."},
    "reroute_s": {"facecolor": "white", "hatch": "/////"},
    "connect_s": {"facecolor": "white", "hatch": "xxxxx"},
    "replay_s": {"facecolor": "0.7"},
    REST: {"facecolor": "white"},
}
WORDS = {
    "detect_s": "detect", "reroute_s": "reroute", "connect_s": "connect", "replay_s": "replay", REST: "between them",
}  # fmt: skip


def recovery_speed_figure(
    record: Record, scenarios: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]
) -> Figure:
    """Left: every recovery as a multiple of its floor. Right: the stages of a recovery, and the floor as a line.

    :param scenarios: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    rows = [(name, arm, cell) for name, arms in scenarios.items() for arm, cell in arms.items()]
    totals_ms = [_totals_ms(record, name, arm) for name, arm, _ in rows]
    end_ms = _end_ms(rows, totals_ms)
    shown = _visible(rows, end_ms)
    with rc_context(LOOK):
        figure = Figure(figsize=(9.5, 1.8 + 0.3 * len(rows)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1))
        for y, (name, arm, cell) in enumerate(rows):
            _draw_ratios(left, y, record, name, arm, cell)
            _draw_stages(right, y, cell)
            _draw_totals(right, y, totals_ms[y], end_ms)
        right.set_xlim(0, end_ms)
        left.axvline(1.0, color="0.3", linewidth=0.9)
        left.axvline(GOAL, color="0.3", linewidth=0.9, linestyle=(0, (4, 2)))
        left.set_xscale("log")
        left.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        left.minorticks_off()
        left.set_xlim(*_limits(record, rows))
        left.set_xlabel(f"times the floor (log scale); solid line: the floor, dashed: our goal, {GOAL} times")
        right.set_xlabel("milliseconds")
        left.set_yticks(range(len(rows)), [_label(arm, cell) for _, arm, cell in rows])
        left.set_ylim(len(rows) - 0.4, -0.6)
        for axes in (left, right):
            draw_grid(axes, "x")
        left.set_title("each recovery; median and 95 % interval", loc="left")
        right.set_title("where the time goes (medians); each recovery", loc="left")
        figure.suptitle("Recovery beside its floor: one connection and one prefill of the same history")
        legend = _legend(shown)
        put_caption(figure, caption(rows, shown, info), put_legend(figure, legend, len(legend)))
    return figure


def caption(rows: Rows, shown: Sequence[str], info: Mapping[str, Any]) -> str:
    sessions = sum(cell["sessions"] for _, _, cell in rows)
    hidden = [stage for stage in STAGES if stage not in shown]
    longest_s = max(finite(cell[stage] for _, _, cell in rows for stage in hidden), default=0.0)
    words = " and ".join(WORDS[stage] for stage in hidden)
    unseen = f" Too short to be seen: {words} (at most {1000 * longest_s:.2g} ms)." if hidden else ""
    return (
        f"n = {sessions} sessions with one failure each; the servers of one span, or of the first and the last of "
        f"three at the same moment, are cut off between two steps. {provenance(info)} Floor: by petals' own code "
        "without a failure, on the servers that took over, all failed spans at once, the fastest of the repeats. A "
        "standby has been fed all but the newest tokens before the failure, so it can be faster than any replay."
        + unseen
    )


def _limits(record: Record, rows: Rows) -> tuple[float, float]:
    """All recoveries, and the goal."""
    ratios = finite(one.over(one.floor_s) for name, arm, _ in rows for one in record.repeats(name, arm))
    return min([1.0, *ratios]) / 1.6, max([GOAL, *ratios]) * 1.6


def _totals_ms(record: Record, name: str, arm: str) -> list[float]:
    return [1000 * seconds for seconds in finite(one.recovery_s for one in record.repeats(name, arm))]


def _parts_s(cell: Mapping[str, Any]) -> dict[str, float]:
    """The median of each stage; spans that are rebuilt side by side wait for each other and for the processors."""
    parts = {stage: cell[stage] or 0.0 for stage in STAGES}
    return {**parts, REST: max((cell["recovery_s_median"] or 0.0) - sum(parts.values()), 0.0)}


def _end_ms(rows: Rows, totals_ms: Sequence[Sequence[float]]) -> float:
    """All bars and floors, and recoveries up to some times the longest of those."""
    bars = [1000 * max(sum(_parts_s(cell).values()), cell["floor_s"] or 0.0) for _, _, cell in rows]
    longest = max([1.0, *bars])
    return 1.06 * max([longest, *(total for of in totals_ms for total in of if total <= LONGEST * longest)])


def _visible(rows: Rows, end_ms: float) -> list[str]:
    """The stages that are wide enough anywhere."""
    widest = {
        stage: max((1000 * _parts_s(cell)[stage] for _, _, cell in rows), default=0.0) for stage in WORDS
    }
    return [stage for stage, width_ms in widest.items() if width_ms >= VISIBLE * end_ms]


def _label(arm: str, cell: Mapping[str, Any]) -> str:
    spans = f"{cell['failed_spans']} span{'' if cell['failed_spans'] == 1 else 's'}"
    return f"{cell['history_tokens']} tokens, {spans}: {style_of(arm).label}"


def _draw_ratios(axes: Axes, y: int, record: Record, name: str, arm: str, cell: Mapping[str, Any]) -> None:
    style, value = style_of(arm), cell["recovery_over_floor"]
    ratios = [repeat.over(repeat.floor_s) for repeat in record.repeats(name, arm)]
    known = [ratio for ratio in ratios if ratio is not None]
    axes.plot(known, [y] * len(known), linestyle="none", marker="|", markersize=7, color="0.5", zorder=2)
    if value is None:
        return
    low, high = cell["recovery_over_floor_low"], cell["recovery_over_floor_high"]
    spread = None if low is None or high is None else [[max(value - low, 0.0)], [max(high - value, 0.0)]]
    axes.errorbar(
        [value], [y], xerr=spread, color=style.color, marker=style.marker, markersize=5, capsize=3, zorder=3
    )
    axes.annotate(
        f"{value:.2f}",
        (value, y),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=SMALL,
        bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none"},
        zorder=2.5,
    )


def _draw_stages(axes: Axes, y: int, cell: Mapping[str, Any]) -> None:
    left_ms = 0.0
    for stage, seconds in _parts_s(cell).items():
        width_ms = 1000 * seconds
        axes.barh([y], [width_ms], left=left_ms, height=0.6, edgecolor="0.2", linewidth=0.6, **LOOKS[stage])
        left_ms += width_ms
    if cell["floor_s"] is not None:
        axes.plot([1000 * cell["floor_s"]] * 2, [y - 0.4, y + 0.4], color="black", linewidth=1.6, zorder=3)


def _draw_totals(axes: Axes, y: int, totals_ms: Sequence[float], end_ms: float) -> None:
    """Below the bar, so that neither hides the other."""
    within = [total for total in totals_ms if total <= end_ms]
    axes.plot(
        within, [y + 0.38] * len(within), linestyle="none", marker="|", markersize=5, color="0.3", zorder=4
    )
    if beyond := [f"{total:.0f}" for total in sorted(totals_ms) if total > end_ms]:
        words = f"{', '.join(beyond)} ms \N{RIGHTWARDS ARROW}"
        axes.text(0.99 * end_ms, y + 0.38, words, ha="right", va="center", fontsize=SMALL)


def _legend(shown: Sequence[str]) -> list[Any]:
    patches: list[Any] = [Patch(edgecolor="0.2", label=WORDS[stage], **LOOKS[stage]) for stage in shown]
    floor: Any = {"color": "black", "linewidth": 1.6, "label": "floor"}
    one: Any = {"color": "0.5", "linestyle": "none", "marker": "|", "markersize": 7, "label": "one recovery"}
    return [*patches, Line2D([], [], **floor), Line2D([], [], **one)]
