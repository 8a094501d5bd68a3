"""Draws +exp=rebalance: throughput and balance quality over time. Nothing in a figure is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from swarmlab.analysis.plots.look import (
    LOOK,
    SMALL,
    draw_grid,
    provenance,
    put_caption,
    put_legend,
    show_zero,
)
from swarmlab.analysis.plots.rebalance_cost import blocks_figure, cost_figure
from swarmlab.analysis.rebalance import ENDED, TIMELINE, Part, parts
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from swarmlab.analysis.rebalance import History

Parts = Mapping[tuple[str, str], Part]
MARGIN = 0.03  # of the time shown, left of the first bar
TITLES = {
    "records_lost": "records of a server are lost, and come back",
    "gap": "two servers die",
    "wide_joins": "a wide server joins",
}
EVENT = {"records_lost": "records gone", "gap": "servers dead", "wide_joins": "announced"}
QUALITIES = {
    "quality_petals": "as petals computes it\n(least of all servers)",
    "quality_appendix_d": "appendix D",
    "quality_optimal": "share of the best\nplacement found",
}


def rebalance_figures(
    history: History, summary: Mapping[str, Any], info: Mapping[str, Any]
) -> dict[str, Figure]:
    """Suffix of the name to figure.

    :param info: ``run.json``
    """
    found = parts(history)
    scenarios = [name for name in TIMELINE if any((name, arm) in found for arm in info["arms"])]
    arms = sorted(info["arms"], key=lambda arm: style_of(arm).order)
    figures: dict[str, Figure] = {}
    with rc_context(LOOK):
        if scenarios:
            figures[""] = _throughput(found, scenarios, arms, info)
            figures["clients"] = _clients(found, scenarios, arms, info)
            figures["quality"] = _quality(found, scenarios, arms, info)
            figures["blocks"] = blocks_figure(history, found, arms, info)
        figures["cost" if scenarios else ""] = cost_figure(found, summary, arms, info)
    return figures


def zero_of(part: Part) -> float:
    """The moment that counts as 0: the (first) event of the scenario was confirmed, or else the scenario began."""
    confirmed = [row["t"] for row in part.rows["faults"] if row["stage"] == "confirm" and row["ok"]]
    begin_s = part.span_s[0] if part.span_s else min(row["t"] for row in part.rows["phases"])
    return min(confirmed, default=begin_s)


def _throughput(
    found: Parts, scenarios: Sequence[str], arms: Sequence[str], info: Mapping[str, Any]
) -> Figure:
    # a bar per move, and bars as high as their words
    most = max((len(part.moves) for part in found.values()), default=1)
    below_inches = len(arms) * max(0.28, 0.13 * min(most, 6))
    figure = Figure(figsize=(3.6 * len(scenarios) + 0.6, 3.9 + below_inches), layout="constrained")
    grid = figure.subplots(
        2, len(scenarios), squeeze=False, height_ratios=(2.9, below_inches), sharex="col", sharey="row"
    )
    for column, scenario in enumerate(scenarios):
        above, below = grid[0, column], grid[1, column]
        for arm in arms:
            if (scenario, arm) in found:
                _draw_arm(above, found[scenario, arm], arm)
        _draw_bound(above, [found[scenario, arm] for arm in arms if (scenario, arm) in found])
        _draw_moves(below, found, scenario, arms)
        for axes in (above, below):
            axes.axvline(0, color="0.3", linewidth=0.8, linestyle=(0, (1, 1)))
        low, high = below.get_xlim()
        # a bar that begins on the frame, or left of it, would look cut off
        first = min((bar.get_x() for bar in below.patches if isinstance(bar, Rectangle)), default=high)
        below.set_xlim(left=min(low, first - MARGIN * (high - low)))
        above.set_title(TITLES[scenario], loc="left")
        below.set_xlabel(f"seconds since: {EVENT[scenario]}")
    show_zero(grid[0, 0])
    grid[0, 0].set_ylabel("swarm throughput, tokens/s\n(weakest block, of what is announced and alive)")
    grid[1, 0].set_yticks(range(len(arms)), [style_of(arm).label for arm in arms])
    grid[1, 0].set_ylim(len(arms) - 0.4, -0.6)
    legend_inches = put_legend(figure, grid[0, 0].get_legend_handles_labels()[0], 6)
    figure.suptitle(
        "The same events, arm by arm: throughput of the weakest block, and servers out of service"
    )
    put_caption(
        figure,
        "n = 1 swarm per arm. Upper bound: best placement of the servers alive, all moves free. Below: each bar is a "
        "server out of service for one reload; hatched: it came back to the blocks it had left (a no-op); a number: "
        f"blocks loaded, of which it had held those in brackets. {provenance(info)}",
        legend_inches,
    )
    return figure


def _draw_arm(axes: Axes, part: Part, arm: str, name: str = "swarm_tps") -> None:
    style, zero_s = style_of(arm), zero_of(part)
    rows = [row for row in part.samples if row.get(name) is not None]
    # lines that lie on each other are told apart by where their markers are
    every = slice(style.order % 6, None, 6)
    axes.plot(
        [row["t"] - zero_s for row in rows], [row[name] for row in rows], drawstyle="steps-post", color=style.color,
        linestyle=style.line, marker=style.marker, markevery=every, markersize=4, label=style.label,
        linewidth=1.7 if arm == "swarmlab" else 1.1, zorder=2 + style.order,
    )  # fmt: skip
    draw_grid(axes)


def _draw_bound(axes: Axes, mine: Sequence[Part]) -> None:
    style = style_of("optimal")
    for index, part in enumerate(mine):
        rows, zero_s = part.samples, zero_of(part)
        axes.plot(
            [row["t"] - zero_s for row in rows], [row["optimal_tps"] for row in rows], color=style.color,
            drawstyle="steps-post", linestyle=style.line, linewidth=2.2, alpha=0.5, zorder=1,
            label=style.label if index == 0 else None,
        )  # fmt: skip


def _draw_moves(axes: Axes, found: Parts, scenario: str, arms: Sequence[str]) -> None:
    for line, arm in enumerate(arms):
        part = found.get((scenario, arm))
        if part is None:
            continue
        style, zero_s, moves = style_of(arm), zero_of(part), part.moves
        height = min(0.8 / max(1, len(moves)), 0.45)
        for index, row in enumerate(sorted(moves, key=lambda row: row["t"])):
            seconds = row["out_of_service_s"] or 0.0
            middle = line + height * (index + 0.5 - len(moves) / 2)
            end_s = row["t"] - zero_s
            axes.barh(
                middle, seconds, left=end_s - seconds, height=height * 0.9, color="white", edgecolor=style.color,
                hatch="/////" if row["no_op"] else None, linewidth=1.0,
            )  # fmt: skip
            words = f"{row['loaded']}" + (f" ({row['redundant']})" if row["redundant"] else "")
            axes.text(end_s + 0.3, middle, words, va="center", fontsize=SMALL - 1)
    draw_grid(axes, "x")


def _clients(found: Parts, scenarios: Sequence[str], arms: Sequence[str], info: Mapping[str, Any]) -> Figure:
    """What clients got, arm by arm; a band where some block was served by nobody."""
    figure = Figure(figsize=(3.6 * len(scenarios) + 0.6, 0.9 + 1.1 * len(arms)), layout="constrained")
    grid = figure.subplots(len(arms), len(scenarios), squeeze=False, sharex="col", sharey=True)
    for column, scenario in enumerate(scenarios):
        for line, arm in enumerate(arms):
            axes, part = grid[line, column], found.get((scenario, arm))
            if column == 0:
                axes.set_ylabel(f"{style_of(arm).label}\ntokens/s")
            if part is not None:
                _draw_delivered(axes, part, style_of(arm).color)
        grid[0, column].set_title(TITLES[scenario], loc="left")
        grid[-1, column].set_xlabel(f"seconds since: {EVENT[scenario]}")
    show_zero(grid[0, 0])
    figure.suptitle("Tokens that clients got")
    put_caption(
        figure,
        "One run, n = 1 swarm per arm; swarmlab's session in every arm. Hatched: some block was served by nobody. "
        f"{_broken_words(found, scenarios, arms)} {provenance(info)}",
    )
    return figure


def _broken_words(found: Parts, scenarios: Sequence[str], arms: Sequence[str]) -> str:
    mine = [found[name, arm] for name in scenarios for arm in arms if (name, arm) in found]
    if any(_broken(part) for part in mine):
        return "Ticks at the top: sessions that ended with an error or hung."
    return "No session ended with an error or hung."


def _broken(part: Part) -> list[float]:
    """When sessions ended with an error or hung."""
    return [row["t"] for row in part.rows["sessions"] if row["outcome"] not in ENDED]


def _draw_delivered(axes: Axes, part: Part, color: str) -> None:
    zero_s, rows = zero_of(part), part.samples
    times = [row["t"] - zero_s for row in rows]
    axes.plot(times, [row["delivered_tps"] or 0.0 for row in rows], color=color, linewidth=1.0)
    # as high as the panel, whatever clients got: where they got nothing, too
    across = axes.get_xaxis_transform()
    unserved = [row["swarm_tps"] <= 0 for row in rows]
    axes.fill_between(
        times, 0, 1, where=unserved, step="post", facecolor="none", edgecolor="0.7", hatch="////", linewidth=0,
        transform=across,
    )  # fmt: skip
    broken = [t - zero_s for t in _broken(part)]
    axes.plot(
        broken,
        [0.9] * len(broken),
        color="black",
        marker="|",
        markersize=9,
        linestyle="none",
        transform=across,
    )
    axes.axvline(0, color="0.3", linewidth=0.8, linestyle=(0, (1, 1)))
    draw_grid(axes)


def _quality(found: Parts, scenarios: Sequence[str], arms: Sequence[str], info: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(3.6 * len(scenarios) + 0.6, 6.1), layout="constrained")
    grid = figure.subplots(len(QUALITIES), len(scenarios), squeeze=False, sharex="col", sharey=True)
    for column, scenario in enumerate(scenarios):
        for line, (name, words) in enumerate(QUALITIES.items()):
            axes = grid[line, column]
            for arm in arms:
                if (scenario, arm) in found:
                    _draw_arm(axes, found[scenario, arm], arm, name)
            axes.axvline(0, color="0.3", linewidth=0.8, linestyle=(0, (1, 1)))
            axes.axhline(info.get("balance_quality", 0.75), color="0.5", linewidth=0.6)
            axes.set_ylim(-0.05, 1.05)
            if column == 0:
                axes.set_ylabel(words)
        grid[0, column].set_title(TITLES[scenario], loc="left")
        grid[-1, column].set_xlabel(f"seconds since: {EVENT[scenario]}")
    legend_inches = put_legend(figure, grid[-1, 0].get_legend_handles_labels()[0], 6)
    figure.suptitle("Balance quality, three flavours: present throughput over what moving could reach")
    put_caption(
        figure,
        "n = 1 swarm per arm. The first two are of what the DHT shows, loading servers included; where no server of "
        "petals would compute anything there is no line. The last is of what is served, over the best placement found "
        f"for the servers alive. Grey: petals' threshold. {provenance(info)}",
        legend_inches,
    )
    return figure
