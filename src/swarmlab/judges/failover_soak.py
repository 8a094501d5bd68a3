"""Judges +exp=failover_soak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis import soak
from swarmlab.analysis.checks import Finding, Verdict, assume, expect, guard
from swarmlab.analysis.plots.repeats import arms_panels, repeats_figure
from swarmlab.analysis.plots.soak import soak_figure
from swarmlab.analysis.soak_table import soak_table
from swarmlab.errors import BadInput
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.claim_numbers import Runs

FIGURE_KINDS = ("steps", "faults", "failovers", "openings", "sessions")
SCENARIO = "soak"
FEW = 5  # numbers that a reason lists
REPEATED = {
    "tokens_wrong": "wrong tokens",
    "failures_survived": "servers lost under sessions that went on",
    "stall_s_p50": "median stall after a loss, s",
    "all_stall_s_p99": "99 % of all stalls are within, s",
    "all_stall_s_max": "longest of all stalls, s",
    "false_alarms_per_1000_steps": "false alarms per 1,000 steps",
}


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """
    :raises BadInput: if ``expected`` lacks arms or ``failures_per_minute``
    """
    require_mappings(expected, "arms")
    if "failures_per_minute" not in expected:
        raise BadInput("expected", sorted(expected), "arms, and failures_per_minute")
    arms: dict[str, dict[str, Any]] = {}

    def findings() -> Iterator[Finding]:
        evidence = soak.Evidence({kind: run.history(kind) for kind in run.kinds})
        arms.update(soak.measure(evidence))
        status = str(run.info.get("status"))
        yield assume("run", status == "complete", f"its status is {status}")
        needed = int(expected["failures_per_minute"] * run.config["minutes"])
        yield from nemesis_is_sound(evidence, needed)
        yield from sessions_are_all_there(evidence)
        for arm in run.info["arms"]:
            yield from _judge_arm(arm, arms.get(arm, {}), expected["arms"].get(arm, {}))

    found = guard("record", findings)
    return Measured(arms, {SCENARIO: arms} if arms else {}, tuple(found))


def nemesis_is_sound(evidence: soak.Evidence, needed: int) -> Iterator[Finding]:
    """Every fault that was ordered was confirmed and undone, and there were enough of them.

    A fault whose server was not in the state that it presumes was never ordered, and does not count at all.
    """
    faults = evidence.rows("faults")
    wrong = [row for row in faults if row["stage"] != "setup" and row["ok"] is not True]
    shown = "; ".join(
        f"{row['fault']} of {row['target']} at {row['stage']}: {row['detail']}" for row in wrong
    )
    yield assume("nemesis", not wrong, shown or "no step went wrong")
    count = {stage: sum(row["stage"] == stage for row in faults) for stage in ("inject", "confirm", "heal")}
    whole = count["inject"] == count["confirm"] == count["heal"]
    yield assume(
        "nemesis", whole, f"{count['inject']} ordered, {count['confirm']} confirmed, {count['heal']} undone"
    )
    failures = len(evidence.confirmed)
    yield assume("nemesis", failures >= needed, f"{failures} failures confirmed of {needed} needed")


def sessions_are_all_there(evidence: soak.Evidence) -> Iterator[Finding]:
    """A client numbers its sessions from 0 on; one that is missing could have been the wrong one."""
    for (arm, client), numbers in soak.session_numbers(evidence).items():
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        words = [f"{len(numbers)} sessions, numbered from 0 to {max(numbers)}"]
        words += [
            f"{what}: {_few(found)}" for what, found in (("missing", missing), ("twice", twice)) if found
        ]
        yield assume(f"{arm} / client {client} / sessions", not (missing or twice), "; ".join(words))


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:FEW])) + (
        f" and {len(numbers) - FEW} more" if len(numbers) > FEW else ""
    )


def table(summary: Mapping[str, Any]) -> Table:
    return soak_table(summary["arms"])


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """The figure of a judged run, of matplotlib."""
    evidence = soak.Evidence({kind: run.history(kind) for kind in FIGURE_KINDS})
    return soak_figure(evidence, summary["arms"], run.info)


def draw_repeats(runs: Runs) -> Any:
    """What an arm came to, run after run."""
    return repeats_figure(runs, arms_panels(runs, REPEATED), "Minutes of failures at random, run after run")


def _judge_arm(arm: str, measured: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    """What an arm shows; one that no failure ever reached shows nothing."""
    if not measured:
        yield Finding(arm, Verdict.UNKNOWN, "it left no session")
        return
    for metric, value in wanted.items():
        yield expect(f"{arm} / {metric}", measured[metric], value)
