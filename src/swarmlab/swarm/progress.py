"""Shows, line by line, how the processes of a swarm come and go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Callable

COLOURS = {"online": "green", "dead": "red", "stopped": "yellow"}


def print_states(console: Console | None = None) -> Callable[[str, str, str], None]:
    """Make an ``on_state`` for :func:`swarmlab.swarm.deploy.deploy` that prints one line per change.

    :param console: where to; None makes one for stdout
    """
    shown_on = console or Console()
    started = time.monotonic()

    def on_state(name: str, state: str, detail: str) -> None:
        colour = COLOURS.get(state, "cyan")
        since_s = time.monotonic() - started
        shown_on.print(
            f"{since_s:6.1f} s  {name:<12} [{colour}]{state:<9}[/] [dim]{escape(detail)}[/]", highlight=False
        )

    return on_state
