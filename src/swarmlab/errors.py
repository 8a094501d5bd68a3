"""Errors that a user can act on; everything else is a bug and may show a traceback."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import NoReturn

EXIT_BAD_INPUT = 2
INTERRUPTED = "swarmlab: interrupted\n"


class BadInput(ValueError):
    """A setting, file or machine that cannot work; the entry points turn it into one line and exit code 2.

    :param field: what the user can change, as they would write it (``swarm.servers[2].start``)
    :param value: what was given
    :param allowed: what would be accepted, in words
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not usable; allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class SwarmFailed(RuntimeError):
    """The swarm could not be brought to, or kept in, the state a run needs (exit code 1)."""


class Arguments(argparse.ArgumentParser):
    """A command line whose mistakes cost one line, as all bad input does."""

    def error(self, message: str) -> NoReturn:
        self.exit(refuse(f"{message}; {self.prog} --help says what it takes"))


def refuse(error: Exception | str) -> int:
    """Say what was wrong with the input, in one line on stderr that begins alike for every command.

    :returns: the exit code
    """
    sys.stderr.write(f"swarmlab: {' '.join(str(error).split())}\n")
    return EXIT_BAD_INPUT


def leaving_on_ctrl_c() -> None:
    """Until somebody sets another handler, Ctrl-C ends this process at once, unless whoever started it has it ignored.

    For the seconds in which only modules are imported: there is nothing to clean up, and a ``KeyboardInterrupt`` in the
    middle of a library's import is a long traceback, or is taken by it for a failed import.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def leave(number: int, _frame: object) -> NoReturn:
    """Handler of a signal: one line, and the exit code that a shell gives."""
    os.write(2, INTERRUPTED.encode())  # a buffered stream may be in the middle of a write
    os._exit(128 + number)
