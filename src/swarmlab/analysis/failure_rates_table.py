"""The paper's Table 1 beside ours, for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from swarmlab.analysis.failure_rates_grid import How
from swarmlab.analysis.tables import number

MARKS = {How.MEASURED: "", How.SIMULATED: "~", How.BOUNDED: ""}
CAPTION = """\
ratio: steps/s relative to the failure-free rate of the same arm and length. ~ simulated: by the closed form, from \
measured steps and failures. paper: quoted from Table 1 (other model, GPUs); * confirmed by a second source, the \
others recalled. model error: closed form against what was measured; in brackets with the failures that happened."""


def failure_rates_table(summary: Mapping[str, Any]) -> Table:
    """Length and failure probability by arm.

    :param summary: a mapping with ``scenarios``, as in ``summary.json``
    """
    title = "Unreliable servers: generated positions per second"
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", caption=CAPTION, caption_justify="left"
    )
    table.padding = 0
    for name in ("tokens", "p", "arm"):
        table.add_column(name, no_wrap=True)
    columns = (
        "steps/s",
        "ratio",
        "paper\nsteps/s",
        "paper\nratio",
        "resets",
        "tokens\nright",
        "model\nerror",
    )
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for arms in summary["scenarios"].values():
        for index, (arm, cell) in enumerate(arms.items()):
            table.add_row(
                str(cell["length_tokens"]) if index == 0 else "",
                f"{cell['failure_probability']:g}" if index == 0 else "",
                arm,
                *ours(cell),
                *papers(cell),
                str(cell["resets_confirmed"]) if cell["how"] != How.SIMULATED else "-",
                number(cell["tokens_identical_ratio"], ".0%"),
                _errors(cell),
                end_section=index == len(arms) - 1,
            )
    return table


def ours(cell: Mapping[str, Any]) -> tuple[str, str]:
    """Our steps/s and ratio, with the mark of what is simulated; words where nothing finished."""
    if cell["steps_per_s"] is None:
        return ("error" if cell["outcome"] == "exception" else "no end"), "0"
    mark = MARKS[How(cell["how"])]
    return mark + f"{cell['steps_per_s']:.3g}", mark + number(cell["ratio_to_failure_free"], ".2g")


def papers(cell: Mapping[str, Any]) -> tuple[str, str]:
    """The paper's steps/s and ratio, with the mark of what is confirmed."""
    if cell["paper_source"] is None:
        return "-", "-"
    mark = "*" if cell["paper_source"] == "confirmed" else ""
    rate = ">1 h" if cell["paper_steps_per_s"] is None else f"{cell['paper_steps_per_s']:g}"
    return rate + mark, number(cell["paper_ratio"], ".2g") + mark


def _errors(cell: Mapping[str, Any]) -> str:
    if cell["closed_form_error"] is None:
        return "-"
    return f"{cell['closed_form_error']:+.0%} ({number(cell['cost_error'], '+.0%')})"
