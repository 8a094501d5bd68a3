"""Draws a moment of a swarm for the terminal. Nothing in it is told by colour alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from swarmlab.analysis.live import Frame, Server

SHADES = "░▒▓█"  # by throughput, for those who see no colours
COLOURS = ("red", "yellow", "green", "bright_green")
NOBODY, HOLDS = "x", "━"
STATE_COLOURS = {"online": "green", "joining": "yellow", "dead": "red", "stopped": "red", "unseen": "magenta"}
SHOWN_SERVERS, SHOWN_EVENTS = 24, 8
NAME, STATE, RATE, NOTE = 10, 9, 9, 38  # characters of the columns beside the strip
NARROW, WIDE = 4, 120  # blanks between them; from this width on there is room for notes


def render(frame: Frame, width: int = 100) -> RenderableType:
    """The strip of blocks, the numbers, a line for each server, and the last events.

    :param width: of the terminal, in characters
    """
    numbers = Text("  ".join(f"{name}: {value}" for name, value in frame.numbers.items()))
    parts: list[RenderableType] = [
        Text(frame.title, style="bold"),
        _strip_table(frame, width),
        numbers,
    ]
    if frame.events:
        parts.append(_events(frame))
    return Group(*parts)


def strip(values: tuple[float, ...], columns: int) -> Text:
    """One character for each block, or for the weakest of several; shade and colour by its share of the median."""
    shown = Text()
    known = sorted(value for value in values if value > 0)
    middle = known[len(known) // 2] if known else 1.0
    for group in _groups(len(values), columns):
        weakest = min(values[block] for block in group)
        if weakest <= 0:
            shown.append(NOBODY, style="bold red")
            continue
        level = sum(weakest >= share * middle for share in (0.5, 0.9, 1.5))
        shown.append(SHADES[level], style=COLOURS[level])
    return shown


def bar(server: Server, n_blocks: int, columns: int) -> Text:
    """Where the server's span lies on the strip."""
    if server.start is None or server.end is None:
        return Text("")
    inside = range(server.start, server.end)
    cells = "".join(
        HOLDS if any(block in inside for block in group) else " " for group in _groups(n_blocks, columns)
    )
    return Text(cells, style=STATE_COLOURS.get(server.state, ""))


def _groups(n_blocks: int, columns: int) -> list[range]:
    """Blocks by the character that shows them."""
    per = max(1, -(-n_blocks // columns))
    return [range(first, min(first + per, n_blocks)) for first in range(0, n_blocks, per)]


def _strip_table(frame: Frame, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    notes = width >= WIDE
    columns = max(width - NAME - STATE - RATE - NARROW - (NOTE if notes else 0), 8)
    n_blocks = len(frame.blocks_tps)
    per = len(_groups(n_blocks, columns)[0]) if n_blocks else 1
    axis = (
        f"blocks 0 to {n_blocks - 1}" + (f", {per} a character" if per > 1 else "") if n_blocks else "blocks"
    )
    for name, size in (("server", NAME), ("state", STATE), ("tokens/s", RATE), (axis, columns)):
        justify = "right" if name == "tokens/s" else "left"
        table.add_column(name, width=size, no_wrap=True, overflow="ellipsis", justify=justify)
    if notes:
        table.add_column("", width=NOTE, no_wrap=True, overflow="ellipsis")
    least = f"{min(frame.blocks_tps, default=0.0):.4g}"
    _add(table, "weakest", "", least, strip(frame.blocks_tps, columns), frame.unit, end_section=True)
    for server in frame.servers[:SHOWN_SERVERS]:
        state = Text(server.state, style=STATE_COLOURS.get(server.state, ""))
        rate = "" if server.tps is None else f"{server.tps:.4g}"
        _add(table, server.name, state, rate, bar(server, n_blocks, columns), server.note)
    if len(frame.servers) > SHOWN_SERVERS:
        _add(table, "...", "", "", Text(f"and {len(frame.servers) - SHOWN_SERVERS} more"), "")
    return table


def _add(table: Table, *cells: RenderableType, end_section: bool = False) -> None:
    table.add_row(*cells[: len(table.columns)], end_section=end_section)


def _events(frame: Frame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("s", justify="right", no_wrap=True, min_width=6)
    table.add_column("arm", no_wrap=True, width=11, overflow="ellipsis")
    table.add_column("what happened last", no_wrap=True, overflow="ellipsis")
    for event in frame.events[-SHOWN_EVENTS:]:
        table.add_row(f"{event.t:.1f}", event.arm, Text(event.words))
    return table
