"""Draws +exp=report_389: the swarm of the report as it was seen and as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from swarmlab.analysis.plots.look import LOOK, SMALL, provenance, put_caption, show_zero
from swarmlab.analysis.style import style_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

    from swarmlab.analysis.balance import Row


def view_figure(rows: Iterable[Row], reloads: Iterable[Row], info: Mapping[str, Any]) -> Figure:
    """The report's swarm as it was seen and as it was, and below what each arm reloads because of that.

    :param rows: ``blocks`` with ``seen_tps``, ``was_tps`` and ``reported_tps``
    :param reloads: of the scenario in which the records are back at the next look
    """
    rows, reloads = list(rows), list(reloads)
    with rc_context(LOOK):
        figure = Figure(figsize=(8.0, 5.2), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(3, 2), sharex=True)
        blocks = np.array([row["block"] for row in rows])
        for name, label, color, line in (
            ("was_tps", "as it was", "#0072B2", "-"),
            ("seen_tps", "as it was seen (records of server S4 missing)", "#D55E00", "--"),
        ):
            values = [row[name] for row in rows]
            above.step(
                blocks,
                values,
                where="mid",
                color=color,
                linestyle=line,
                label=f"{label}: min {min(values):,.0f}",
            )
        above.plot(
            blocks,
            [row["reported_tps"] for row in rows],
            "k.",
            markersize=3,
            label="as published in the report",
        )
        above.set_ylabel("throughput of a block, tokens/s")
        show_zero(above)
        above.legend(loc="lower right", fontsize=SMALL)
        above.set_title("Blocks of Llama-65B in the public swarm of July 2023", loc="left")
        _draw_reloads(
            below, reloads, [arm for arm in info["arms"] if arm not in {row["arm"] for row in reloads}]
        )
        below.set_xlabel("block")
        below.set_xlim(-0.5, len(rows) - 0.5)
        figure.suptitle("The imbalance was an artefact of missing records")
        text = (
            "Below: what a server loads if it checks while the records are missing and they are back at its next "
            "look (hatched: what it held already). Each server alone, the others stay; nothing is random. "
            "Published throughput: quoted from the report. "
        )
        put_caption(figure, text + provenance(info))
    return figure


def _draw_reloads(axes: Axes, reloads: list[Row], idle: list[str]) -> None:
    names = f" (none with {' and '.join(style_of(arm).label for arm in idle)})" if idle else ""
    axes.set_title(f"Reloads that follow{names}", loc="left")
    labels = []
    for line, row in enumerate(reloads):
        style, width = style_of(row["arm"]), row["new_end"] - row["new_start"]
        hatch = "////" if row["no_op"] else None
        axes.barh(
            line,
            width,
            left=row["new_start"] - 0.5,
            height=0.7,
            color="white",
            edgecolor=style.color,
            hatch=hatch,
        )
        words = f"{row['out_of_service_s'] / 60:.0f} min" + (", for nothing" if row["no_op"] else "")
        axes.text(row["new_end"] + 0.5, line, words, va="center", fontsize=SMALL)
        labels.append(f"{style.label}: {row['server']}")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
