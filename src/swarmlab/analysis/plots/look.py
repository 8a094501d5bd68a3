"""What all figures share: sizes, the sentence that says where the numbers come from, and marks of spread."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from swarmlab.analysis.stats import Estimate
    from swarmlab.analysis.style import ArmStyle

LOOK: Any = {"font.size": 8, "axes.titlesize": 8.5, "axes.titleweight": "bold", "figure.titlesize": 10.5}
SMALL = 7  # points
LETTERS_PER_INCH = 17.5  # of the caption
LEGEND_ROW = 0.17  # inches
BELOW_ZERO = 0.03  # of what is shown above it


def provenance(info: Mapping[str, Any]) -> str:
    """Seed, model, world and hardware, and the run: every caption ends with it.

    :param info: ``run.json``, with ``published_runs`` where there are repeats of it
    """
    host, model, n_runs = info.get("host", {}), info.get("model", {}), info.get("published_runs", 1)
    shown = f", one of {n_runs} that are published" if n_runs > 1 else ""
    return (
        f"Seed {info.get('seed')}; {model.get('id')}; {world_words(info)} "
        f"({host.get('cores')} cores, {host.get('cpu')}); run {info.get('id')}{shown}."
    )


def world_words(info: Mapping[str, Any]) -> str:
    """``real swarm on cpu`` or ``simulated swarm``: the two are never mixed up."""
    if info.get("world") == "simulated":
        return "simulated swarm, computed on cpu"
    network = info.get("network")
    emulated = f", network {network}" if network and "host" not in network else ""
    return f"{info.get('world')} swarm on {info.get('device')}{emulated}"


def put_legend(figure: Figure, handles: Sequence[Any], columns: int) -> float:
    """Of handles with labels, below the figure; returns its height in inches, for :func:`put_caption`."""
    # anchored in the figure: one "outside" of it would be moved onto the caption when the paper is cut to size
    figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, fontsize=SMALL, frameon=False,
        borderaxespad=0.3,
    )  # fmt: skip
    return LEGEND_ROW * math.ceil(len(handles) / columns)


def put_caption(figure: Figure, text: str, legend_inches: float = 0.0) -> None:
    """Below the figure, as wide as it.

    :param legend_inches: height of a legend below the figure
    """
    width, height = figure.get_size_inches()
    below = (0.1 + legend_inches) / height
    figure.text(0.01, -below, textwrap.fill(text, int(LETTERS_PER_INCH * width)), fontsize=SMALL, va="top")


def draw_grid(axes: Axes, axis: Any = "y") -> None:
    axes.grid(axis=axis, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def show_zero(axes: Axes) -> None:
    """From a little below nothing: a line that lies at 0, as in an outage, is not hidden by the axis. Of axes that
    share their scale and have nothing below 0, once everything is drawn."""
    top = axes.get_ylim()[1]
    axes.set_ylim(-BELOW_ZERO * top, top)


def draw_estimate(
    axes: Axes, x: float, estimate: Estimate, style: ArmStyle, *, horizontal: bool = False
) -> None:
    """The arm's marker at the value, with its interval; hollow where there is only one repeat and so no interval."""
    spread = None
    if estimate.low is not None and estimate.high is not None:
        spread = [
            [max(estimate.value - estimate.low, 0.0)],
            [max(estimate.high - estimate.value, 0.0)],
        ]
    face = style.color if spread else "white"
    look: Any = {
        "color": style.color,
        "marker": style.marker,
        "markerfacecolor": face,
        "markersize": 5,
        "capsize": 3,
    }
    if horizontal:
        axes.errorbar([estimate.value], [x], xerr=spread, **look)
    else:
        axes.errorbar([x], [estimate.value], yerr=spread, **look)
