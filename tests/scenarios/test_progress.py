"""What a run shows while it goes on, in a terminal and in a log file."""

from __future__ import annotations

import io
import os
import re

import pytest
from rich.console import Console

from swarmlab.scenarios.progress import ConsoleProgress, QuietConsole

PATH = "/a/long/folder" * 12 + "/server.log"


@pytest.fixture
def show():
    """Run a short progress on a console; return what was written to it."""

    def show(*, terminal):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=80, color_system=None)
        with ConsoleProgress(2, console) as progress:
            progress.on_state("a1", "dead", f"see {PATH}\nnot this line")
            progress.begin("s", "[petals]")
            progress.end("s", "[petals]", "exception", "Error: [broken] " + "word " * 100)
            progress.say(f"see {PATH}")
        return file.getvalue()

    return show


@pytest.mark.parametrize("terminal", [True, False])
def test_paths_are_whole_so_that_they_can_be_copied(show, terminal):
    assert show(terminal=terminal).count(f"see {PATH}") == 2
    assert "not this line" not in show(terminal=terminal)


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_are_text_and_not_markup(show, terminal):
    out = show(terminal=terminal)
    assert "s / [petals]" in out
    assert "Error: [broken] word" in out


def test_a_terminal_gets_a_bar_with_an_estimate(show):
    out = show(terminal=True)
    assert "s / [petals]" in out
    assert re.search(r"[01]/2 .*about", out)


def test_a_log_file_gets_one_line_per_event_and_nothing_else(show):
    lines = show(terminal=False).splitlines()
    assert [line.split()[0] for line in lines] == ["swarm", "s", "see"]
    assert all("\x1b" not in line for line in lines)


def test_a_reader_that_leaves_does_not_end_the_run():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, ConsoleProgress(2, QuietConsole(file=pipe)) as progress:
        for _ in range(2):
            progress.on_state("a1", "dead", "x" * 100_000)
            progress.say("and so on")
    assert progress.console.quiet


def test_a_terminal_that_was_closed_does_not_end_the_run():
    class Closed(io.StringIO):
        def write(self, _text):
            raise OSError(5, "Input/output error")

    ConsoleProgress(2, Console(file=Closed())).say("is anybody there?")
