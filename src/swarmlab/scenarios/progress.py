"""What a run shows while it goes on: processes as they come and go, each arm as it ends, and how long is left."""

from __future__ import annotations

import os
import textwrap
from contextlib import suppress
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

DETAIL_CHARACTERS = 120
COLOURS = {
    "online": "green",
    "dead": "red",
    "stopped": "yellow",
    "identical": "green",
    "wrong": "red",
    "exception": "yellow",
    "hang": "yellow",
}


class QuietConsole(Console):
    """Falls silent when whoever read the output has left (``| head``); the run goes on and is recorded."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # what is still buffered goes there when the process ends
        os.close(nowhere)


class ConsoleProgress:
    """Lines for what has happened, and below them a bar with an estimate.

    :param total: arms times scenarios, references included
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self.console = console or QuietConsole()
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("about"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            TextColumn("{task.description}"),
            *columns,
            TextColumn("left"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,  # a log file gets the lines only
            # arms take between 2 s and a deadline: only an average over many says anything
            speed_estimate_period=600,
        )
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_state(self, name: str, state: str, detail: str) -> None:
        self._line(f"[dim]swarm {escape(name):<32}[/]", state, detail)

    def begin(self, scenario: str, arm: str) -> None:
        self._bar.update(self._task, description=escape(f"{scenario} / {arm}"))

    def end(self, scenario: str, arm: str, outcome: str, detail: str) -> None:
        shown = textwrap.shorten(detail, DETAIL_CHARACTERS, placeholder=" ...")  # whole in the record
        self._line(f"[bold]{escape(f'{scenario} / {arm}'):<38}[/]", outcome, shown)
        self._bar.advance(self._task)

    def say(self, text: str) -> None:
        self._print(text, markup=False)

    def _line(self, head: str, state: str, detail: str) -> None:
        colour = COLOURS.get(state, "cyan")
        first_line = detail.splitlines()[0] if detail else ""
        self._print(f"{head} [{colour}]{escape(state):<10}[/] [dim]{escape(first_line)}[/]")

    def _print(self, text: str, **options: Any) -> None:
        with suppress(OSError):  # a terminal that was closed
            self.console.print(text, highlight=False, soft_wrap=True, **options)
