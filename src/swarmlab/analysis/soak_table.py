"""What a soak shows, for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.table import Table

from swarmlab.analysis.tables import number

Show = Callable[[Mapping[str, Any]], str]


def _count(name: str) -> Show:
    return lambda arm: "-" if arm[name] is None else str(arm[name])


def _mib(name: str) -> Show:
    return lambda arm: "-" if arm[name] is None else f"{arm[name] / 2**20:.2f} MiB"


def _spread(name: str) -> Show:
    parts = ("p50", "p95", "p99", "max")
    return lambda arm: " / ".join(number(arm.get(f"{name}_{part}"), ".2f") for part in parts)


LINES: dict[str, Show] = {
    "servers killed / hung / slowed": lambda arm: f"{arm['kills']} / {arm['stops']} / {arm['slowdowns']}",
    "sessions": _count("sessions"),
    "  identical to the plain model": lambda arm: str(arm["outcomes"].get("identical", 0)),
    "  met by a failure": _count("sessions_with_failures"),
    "failures survived": _count("failures_survived"),
    "steps": _count("steps"),
    "tokens": _count("tokens"),
    "tokens wrong": _count("tokens_wrong"),
    "  of a tie in the plain model": lambda arm: str(arm.get("ties", 0)),
    "largest difference of hidden states": lambda arm: number(arm["max_abs_diff"], ".2g"),
    "median step, s": lambda arm: number(arm["step_s_median"], ".3f"),
    "stalls, s: 50 / 95 / 99 / 100 %": _spread("all_stall_s"),
    "  a server was lost": _spread("stall_s"),
    "  a session opened (0.2 s or more)": _spread("opening_stall_s"),
    "  a reply was late (0.2 s or more)": _spread("late_stall_s"),
    "false alarms (per 1,000 steps)": lambda arm: (
        f"{arm['false_alarms']} ({number(arm['false_alarms_per_1000_steps'], '.2f')})"
    ),
    "history of a session, at most": _mib("history_bytes_max"),
    "growth of a client after warm-up": _mib("client_rss_growth_bytes"),
    "leaked processes": _count("leaked_processes"),
    "leaked sockets": _count("leaked_sockets"),
    "leaked files": _count("leaked_files"),
}


def soak_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    """One column per arm; of three, long cells go on in a further line.

    :param arms: as in ``summary.json``
    """
    table = Table(box=box.SIMPLE_HEAD, title="Failover soak", title_justify="left")
    table.padding = 0  # the dividers are blanks already
    table.add_column("", no_wrap=True)
    for arm in arms:
        table.add_column(arm, justify="right", overflow="fold")
    for words, show in LINES.items():
        table.add_row(words, *(show(arm) for arm in arms.values()))
    return table
