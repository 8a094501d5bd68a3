"""Draws +exp=rebalance: the blocks of each arm over time, and what its reloads cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from swarmlab.analysis.plots.look import SMALL, draw_grid, provenance, put_caption, put_legend
from swarmlab.analysis.plots.repeats import Panel, arms_panels, scenario_panels
from swarmlab.analysis.rebalance import SLOW_DISK, TIMELINE, Part
from swarmlab.analysis.stats import estimate, finite
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from swarmlab.analysis.rebalance import History

Parts = Mapping[tuple[str, str], Part]
OUT, OUT_WORDS = "out_of_service_s", "seconds out of service"
BELOW_BAR = 0.41  # lines below the middle of a bar
# what a server that moved loaded, and how it is hatched
LOADS = {"loaded: new to the server": None, "held already": "....", "held already, no-op": "/////"}


def blocks_figure(history: History, found: Parts, arms: Sequence[str], info: Mapping[str, Any]) -> Figure:
    """Block by time: announced throughput; framed: a server that moved; dotted, crossed: what was done to the swarm."""
    figure = Figure(figsize=(10.0, 0.9 + 1.55 * len(arms)), layout="constrained")
    grid = figure.subplots(len(arms), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    image = None
    most = max(
        (row["announced_tps"] for row in history["blocks"] if row["scenario"] in TIMELINE), default=1.0
    )
    for axes, arm in zip(grid, arms, strict=True):
        rows = [row for row in history["blocks"] if row["arm"] == arm and row["scenario"] in TIMELINE]
        mine = {name: found[name, arm] for name in TIMELINE if (name, arm) in found}
        if not rows or not mine:
            continue
        zero_s = min(part.span_s[0] for part in mine.values() if part.span_s)
        image = _draw_blocks(axes, rows, zero_s, most)
        for name, part in mine.items():
            _draw_events(axes, part, zero_s, name)
        _draw_deaths(axes, list(mine.values()), zero_s)
        axes.set_ylabel(f"{style_of(arm).label}\nblock")
    if image is not None:
        figure.colorbar(image, ax=list(grid), label="announced throughput, tokens/s", shrink=0.6)
    grid[-1].set_xlabel("seconds since the first scenario began")
    figure.suptitle("Every block's throughput as the DHT announces it")
    put_caption(
        figure,
        "One run, n = 1 swarm per arm. Above each: when a scenario begins. Dotted: the event of a scenario confirmed "
        "(records gone; servers dead; wide server announced). Crosses: blocks of a server that is killed; its records "
        "stay until they expire. Framed: blocks of a server that moved, for as long as it was out of service; hatched: "
        "a no-op. Announced, not served: loading servers count, as they do for petals. White at the right: the arm's "
        "last scenario is over. "
        f"{provenance(info)}",
    )
    return figure


def _draw_blocks(axes: Axes, rows: Sequence[Mapping[str, Any]], zero_s: float, most: float) -> Any:
    times = np.unique([row["t"] for row in rows])
    place = {t: index for index, t in enumerate(times.tolist())}
    values = np.zeros((max(row["block"] for row in rows) + 1, len(times)))
    for row in rows:
        values[row["block"], place[row["t"]]] = row["announced_tps"]
    edges = np.append(times, times[-1] + np.median(np.diff(times)) if len(times) > 1 else times[-1] + 1.0)
    return axes.pcolormesh(
        edges - zero_s,
        np.arange(len(values) + 1),
        values,
        cmap="cividis",
        vmin=0.0,
        vmax=most,
        rasterized=True,
    )


def _draw_events(axes: Axes, part: Part, zero_s: float, scenario: str) -> None:
    for row in part.rows["faults"]:
        if row["stage"] == "confirm" and row["ok"]:
            axes.axvline(row["t"] - zero_s, color="white", linewidth=1.2, linestyle=(0, (1, 1)))
    if part.span_s:  # above the panel: in it, the words would be crossed by the lines of the events
        words = f"{scenario.replace('_', ' ')} \u2192"
        across = axes.get_xaxis_transform()
        axes.text(part.span_s[0] - zero_s, 1.01, words, fontsize=SMALL, va="bottom", transform=across)
    for row in part.moves:
        seconds = max(row["out_of_service_s"] or 0.0, 0.3)  # a swap would not be seen
        axes.add_patch(
            Rectangle(
                (row["t"] - zero_s - seconds, row["new_start"]),
                seconds,
                row["new_end"] - row["new_start"],
                fill=False,
                edgecolor="white",
                linewidth=1.2,
                hatch="////" if row["no_op"] else None,
            )
        )


def _draw_deaths(axes: Axes, timeline: Sequence[Part], zero_s: float) -> None:
    """A cross on each block of a server that is killed, where it had come to by then."""
    spans = [row for part in timeline for row in part.rows["reloads"] if row.get("completed", True)]
    for row in (row for part in timeline for row in part.rows["faults"]):
        if (row["fault"], row["stage"], row["ok"]) != ("kill", "confirm", True):
            continue
        before = [one for one in spans if one["server"] == row["target"] and one["t"] <= row["t"]]
        if before:
            last = max(before, key=lambda one: one["t"])
            middles = [block + 0.5 for block in range(last["new_start"], last["new_end"])]
            t = row["t"] - zero_s
            axes.plot(
                [t] * len(middles), middles, color="white", linestyle="none", marker="x", markersize=3.5
            )


def cost_figure(
    found: Parts, summary: Mapping[str, Any], arms: Sequence[str], info: Mapping[str, Any]
) -> Figure:
    """Blocks loaded, seconds out of service, and the move by two blocks from a slow disk.

    :param info: ``run.json``, with ``published`` where there are repeats of the run
    """
    slow = summary["scenarios"].get(SLOW_DISK, {})
    over_all = summary["arms"]
    panels = 2 * bool(over_all) + bool(slow)
    title = _together([name for name in TIMELINE if any((name, arm) in found for arm in arms)])
    figure = Figure(figsize=(3.5 * max(1, panels), 2.9), layout="constrained")
    grid = iter(figure.subplots(1, max(1, panels), squeeze=False)[0])
    repeats = info.get("published", ())
    loaded, out = arms_panels(repeats, dict.fromkeys(("blocks_loaded", OUT), "")) if repeats else (None, None)
    if over_all:
        mine = [arm for arm in arms if arm in over_all]
        _draw_loaded(axes := next(grid), found, mine, title)
        _draw_repeats(axes, mine, loaded)
        _draw_bars(
            axes := next(grid), {arm: over_all[arm][OUT] for arm in mine}, f"{OUT_WORDS}, all moves", title
        )
        _draw_repeats(axes, mine, out)
    if slow:
        mine = [arm for arm in arms if arm in slow]
        _draw_bars(axes := next(grid), {arm: slow[arm][OUT] for arm in mine}, OUT_WORDS, _slow_title(found))
        panels_of_it = (one for one in scenario_panels(repeats, OUT) if one.scenario == SLOW_DISK)
        _draw_repeats(axes, mine, next(panels_of_it, None))
    figure.suptitle("What reloads cost")
    several = (
        "Ticks: each published run, where an arm was in several; the thick line: interval of 95 % of their median. "
        if any(axes.collections for axes in figure.axes)
        else ""
    )
    text = f"Bars: one run, n = 1 swarm per arm. {several}Servers that join are left out. {provenance(info)}"
    put_caption(figure, text, put_legend(figure, _kinds_of_loads(), 3) if over_all else 0.0)
    return figure


def _draw_repeats(axes: Axes, arms: Sequence[str], panel: Panel | None) -> None:
    """Under the bar of each arm that several published runs have: a tick for each, and their interval."""
    for line, arm in enumerate(arms):
        values = finite(panel.of(arm)) if panel else []
        found = estimate(values)
        if found is None or found.low is None or found.high is None:
            continue
        y = line + BELOW_BAR
        axes.hlines(y, found.low, found.high, color="0.2", linewidth=2.2)
        axes.plot(values, [y] * len(values), color="0.2", linestyle="none", marker="|", markersize=6)
        right = axes.get_xlim()[1]
        axes.set_xlim(right=max(right, 1.05 * max(values)))


def _kinds_of_loads() -> list[Any]:
    return [
        Patch(facecolor="white", edgecolor="0.2", label=name, hatch=hatch) for name, hatch in LOADS.items()
    ]


def _together(scenarios: Sequence[str]) -> str:
    names = ", ".join(name.replace("_", " ") for name in scenarios)
    return names if len(scenarios) < 2 else f"{names}\n(together)"


def _slow_title(found: Parts) -> str:
    """How many blocks move by how many on the slow disk, as they did."""
    moves = [row for (name, _), part in found.items() if name == SLOW_DISK for row in part.moves]
    if not moves:
        return "slow disk: no move"
    widths = sorted({row["new_end"] - row["new_start"] for row in moves})
    steps = sorted({abs(row["new_start"] - row["old_start"]) for row in moves})
    return f"slow disk: {' or '.join(map(str, widths))} blocks move by {' or '.join(map(str, steps))}"


def _draw_loaded(axes: Axes, found: Parts, arms: Sequence[str], title: str) -> None:
    for line, arm in enumerate(arms):
        moves = [row for name in TIMELINE if (name, arm) in found for row in found[name, arm].moves]
        no_op = sum(row["loaded"] for row in moves if row["no_op"])
        held = sum(row["redundant"] for row in moves) - no_op
        counts = (sum(row["loaded"] for row in moves) - held - no_op, held, no_op)
        left = 0
        for count, hatch in zip(counts, LOADS.values(), strict=True):
            axes.barh(
                line, count, left=left, height=0.65, color="white", edgecolor=style_of(arm).color, hatch=hatch
            )
            left += count
        axes.text(left, line, f" {left}", va="center", fontsize=SMALL)
    _finish(axes, arms, "blocks loaded by servers that moved", title)


def _draw_bars(axes: Axes, values: Mapping[str, float], label: str, title: str) -> None:
    for line, (arm, value) in enumerate(values.items()):
        style = style_of(arm)
        axes.barh(line, value, height=0.65, color=style.color, alpha=0.8)
        axes.text(value, line, f" {value:.3g}", va="center", fontsize=SMALL)
    _finish(axes, list(values), label, title)


def _finish(axes: Axes, arms: Sequence[str], label: str, title: str) -> None:
    axes.set_yticks(range(len(arms)), [style_of(arm).label for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.set_title(title, loc="left")
    longest = max(
        (bar.get_x() + bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)), default=0.0
    )
    axes.set_xlim(0, 1.18 * longest or 1.0)  # nothing but zeros would get an axis around 0
    draw_grid(axes, "x")
