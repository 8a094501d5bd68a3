"""The paper's Table 1 beside ours, for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from swarmlab.analysis.failure_rates_grid import How
from swarmlab.analysis.tables import add_arms, arms_table, number

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
    headings = (
        "steps/s",
        "ratio",
        "paper\nsteps/s",
        "paper\nratio",
        "resets",
        "tokens\nright",
        "model\nerror",
    )
    table = arms_table(title, headings, first="tokens, p\n arm")
    table.caption, table.caption_justify = CAPTION, "left"
    for arms in summary["scenarios"].values():
        of = next(iter(arms.values()))
        label = f"{of['length_tokens']}, {of['failure_probability']:g}"
        add_arms(table, label, {arm: _cells(cell) for arm, cell in arms.items()})
    return table


def _cells(cell: Mapping[str, Any]) -> list[str]:
    return [
        *ours(cell),
        *papers(cell),
        str(cell["resets_confirmed"]) if cell["how"] != How.SIMULATED else "-",
        number(cell["tokens_identical_ratio"], ".0%"),
        _errors(cell),
    ]


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
