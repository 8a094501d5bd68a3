"""The figure of a soak: what happened to the servers, and what the clients felt of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context, ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from swarmlab.analysis.metrics import recoveries
from swarmlab.analysis.plots.look import LOOK, SMALL, draw_grid, provenance, put_caption
from swarmlab.analysis.stalls import SLOW_S
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from swarmlab.analysis.metrics import Row
    from swarmlab.analysis.soak import Evidence

# Told apart without colour: filled, hatched, and a mere tick.
BARS: dict[str, Any] = {
    "kill": {"facecolor": "0.25", "edgecolor": "0.25"},
    "stop": {"facecolor": "white", "edgecolor": "0.25", "hatch": "/////"},
}
WORDS = {"kill": "killed, until it serves again", "stop": "hung (SIGSTOP)", "pause": "slowed for up to 0.5 s"}


def soak_figure(evidence: Evidence, arms: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> Figure:
    """Time from left to right: faults by server on top, then seconds per step of every client.

    :param arms: as in ``summary.json``
    :param info: ``run.json``, for the caption
    """
    clients = sorted({(row["arm"], row["client"]) for row in evidence.rows("sessions")})
    with rc_context(LOOK):
        figure = Figure(figsize=(9.0, 2.6 + 1.5 * len(clients)), layout="constrained")
        grid = figure.add_gridspec(1 + len(clients), 1, height_ratios=(1.35, *[1] * len(clients)))
        top = figure.add_subplot(grid[0])
        draw_faults(top, evidence.rows("faults"))
        panels: list[Axes] = []
        for index, (arm, client) in enumerate(clients):
            shared = panels[0] if panels else None
            panels.append(figure.add_subplot(grid[1 + index], sharex=top, sharey=shared))
            draw_client(panels[-1], evidence, arm, client)
        for axes in (top, *panels[:-1]):
            axes.tick_params(labelbottom=False)
        (panels or [top])[-1].set_xlabel("seconds since the run began")
        figure.suptitle("Servers fail at random: how long each step takes")
        put_caption(figure, caption(arms, info))
    return figure


def draw_faults(axes: Axes, faults: Sequence[Row]) -> None:
    """One line per server, with a bar for each time it was away."""
    servers = sorted({row["target"] for row in faults}, reverse=True)
    for row in faults:
        if row["stage"] != "confirm" or not row["ok"]:
            continue
        y = servers.index(row["target"])
        if row["fault"] == "pause":
            axes.plot([row["t"]], [y], color="0.1", marker="|", markersize=5, markeredgewidth=0.8)
        elif row["fault"] in BARS:
            axes.broken_barh(
                [(row["t"], _healed(row, faults) - row["t"])], (y - 0.3, 0.6), **BARS[row["fault"]]
            )
    axes.set_yticks(range(len(servers)), servers)
    axes.set_ylim(-0.6, len(servers) - 0.4)
    axes.set_title("faults, by server", loc="left")
    draw_grid(axes)
    handles: list[Any] = [Patch(label=WORDS[name], **look) for name, look in BARS.items()]
    handles.append(
        Line2D([], [], color="0.1", marker="|", linestyle="none", markersize=6, label=WORDS["pause"])
    )
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=SMALL, frameon=False,
        borderaxespad=0.1,
    )  # fmt: skip


def draw_client(axes: Axes, evidence: Evidence, arm: str, client: int) -> None:
    """Seconds per step; steps during which a server was replaced are marked."""
    steps = [row for row in evidence.rows("steps", arm) if row["client"] == client]
    failovers = recoveries(evidence.rows("failovers", arm))
    stalls = {(row["session"], row["token"]) for row in failovers if row["client"] == client}
    hit = [row for row in steps if (row["session"], row["token"]) in stalls]
    others = [row for row in steps if (row["session"], row["token"]) not in stalls]
    opening = [row for row in others if row["token"] == 0 and row["seconds"] >= SLOW_S]
    rest = [row for row in others if row["token"] > 0 or row["seconds"] < SLOW_S]
    axes.plot(
        [row["t"] for row in rest], [row["seconds"] for row in rest],
        linestyle="none", marker=".", markersize=2.5, color="0.6", label="step (all slow, 1 of 10 others)",
    )  # fmt: skip
    axes.plot(
        [row["t"] for row in hit], [row["seconds"] for row in hit],
        linestyle="none", marker="v", markersize=4.5, color="black", label="lost or missed a server",
    )  # fmt: skip
    axes.plot(
        [row["t"] for row in opening], [row["seconds"] for row in opening],
        linestyle="none", marker="o", markersize=4, markerfacecolor="white", color="black",
        label="slow opening",
    )  # fmt: skip
    sessions = [row for row in evidence.rows("sessions", arm) if row["client"] == client]
    bad = [row for row in sessions if row["outcome"] != "identical"]
    across = axes.get_xaxis_transform()
    if bad:
        axes.plot(
            [row["t"] for row in bad], [0.94] * len(bad), linestyle="none", marker="x", markersize=5, color="black",
            transform=across, label="session wrong or failed",
        )  # fmt: skip
    axes.set_yscale("log")
    axes.margins(y=0.12)  # the longest stalls are what it is about: none is to touch the frame
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    draw_grid(axes)
    axes.set_ylabel("s per step", fontsize=SMALL)
    identical = len(sessions) - len(bad)
    axes.set_title(
        f"{style_of(arm).label}, client {client}: {identical} of {len(sessions)} sessions identical",
        loc="left",
    )
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
        fontsize=SMALL,
        frameon=False,
        borderaxespad=0.1,
    )


def caption(arms: Mapping[str, Mapping[str, Any]], info: Mapping[str, Any]) -> str:
    """What a reader must know to judge the figure."""
    counts = next(iter(arms.values()), {})
    totals = "; ".join(
        f"{arm}: {one['sessions']} sessions, {one['tokens']} tokens, {one['tokens_wrong']} wrong, "
        f"{one['failures_survived']} failures survived, {one['false_alarms']} false alarms{_stalls(one)}"
        for arm, one in arms.items()
    )
    text = (
        f"{counts.get('kills')} servers killed, {counts.get('stops')} hung, {counts.get('slowdowns')} slowed. "
        f"n = 1 run: {totals}. "
    )
    return text + provenance(info)


def _stalls(one: Mapping[str, Any]) -> str:
    """Half, 95 %, 99 % and all of the stalls take at most so long."""
    if not one.get("all_stalls"):
        return ""
    shown = " / ".join(f"{one[f'all_stall_s_{name}']:.2f}" for name in ("p50", "p95", "p99", "max"))
    kinds = "servers lost, and openings and late replies of 0.2 s or more"
    return f"; {one['all_stalls']} stalls ({kinds}): 50 / 95 / 99 / 100 % within {shown} s"


def _healed(confirmed: Row, faults: Sequence[Row]) -> float:
    """When the server served again; if never, the end of the record."""
    later = [row["t"] for row in faults if row["t"] > confirmed["t"]]
    healed = [
        row["t"]
        for row in faults
        if row["t"] > confirmed["t"]
        and row["target"] == confirmed["target"]
        and row["stage"] in ("heal", "cleanup")
    ]
    return min(healed, default=max(later, default=confirmed["t"]))
