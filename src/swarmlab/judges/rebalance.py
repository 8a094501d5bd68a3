"""Judges +exp=rebalance and +exp=rebalance_under_load."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swarmlab.analysis import rebalance, rebalance_checks
from swarmlab.analysis.balance_checks import check_expected
from swarmlab.analysis.checks import expect, guard
from swarmlab.analysis.plots.rebalance import rebalance_figures
from swarmlab.analysis.plots.repeats import Runs, arms_panels, repeats_figure, scenario_panels
from swarmlab.analysis.rebalance_tables import load_table, moves_table
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import DamagedRun, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.checks import Finding

FIGURE_KINDS = ("phases", "balance", "blocks", "reloads", "decisions", "faults", "sessions")
RATIO = "out_of_service_over_swarmlab"
REPEATED = {
    "swarm_tps_over_optimal_mean": "throughput, share of bound (mean)",
    "zero_throughput_share": "share of the time without throughput",
    "blocks_loaded": "blocks loaded by servers that moved",
    "redundant_loads": "blocks loaded that were held already",
    "out_of_service_s": "seconds out of service, all moves",
}
REPEATED_UNDER_LOAD = {
    "delivered_tps_mean": "tokens/s that clients got (mean)",
    "tokens_wrong": "wrong tokens",
    "sessions_broken": "sessions that ended with an error",
    "stall_s_max": "longest stall, s",
}
LOGGING_ARMS = ("petals", "recheck", "appendix_d")  # whose decisions petals' own log tells of


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every number again from the stored history.

    :raises BadInput: if ``expected`` has no scenarios
    """
    require_mappings(expected, "scenarios")
    arms: dict[str, Any] = {}
    scenarios: dict[str, Any] = {}

    def findings() -> Iterator[Finding]:
        history = {kind: run.history(kind) for kind in rebalance.KINDS}
        over_all, apart = rebalance.measure(history)
        arms.update(over_all)
        scenarios.update(apart)
        found, names = rebalance.parts(history), list(run.info["scenarios"])
        every_s = run.config["rebalance"]["sample_every_s"]
        yield from rebalance_checks.check_run(found, run.info, names, every_s)
        for arm in run.info["arms"]:
            if arm in LOGGING_ARMS:
                yield rebalance_checks.check_decisions(found, arm)
        if ("records_lost", "petals") in found:
            yield rebalance_checks.check_case(found["records_lost", "petals"])
        yield from check_expected(scenarios, _for_arms(expected, run.info["arms"]), list(run.info["arms"]))
        for arm, wanted in expected.get("arms", {}).items():
            if arm in arms:
                for metric, value in wanted.items():
                    yield expect(f"{arm} / {metric}", arms[arm].get(metric), value)

    found = guard("record", findings)
    return Measured(arms, scenarios, tuple(found))


def _for_arms(expected: dict[str, Any], arms: list[str]) -> dict[str, Any]:
    """What is expected of a run with these arms: a ratio of two needs both."""
    wanted = deepcopy(expected)
    if not set(rebalance_checks.SLOW_ARMS) <= set(arms):
        for metrics in wanted["scenarios"].get(rebalance.SLOW_DISK, {}).get("arms", {}).values():
            metrics.pop(RATIO, None)
    return wanted


def table(summary: Mapping[str, Any]) -> Table:
    return moves_table(summary)


def texts(run: Run) -> list[Table]:
    """The table of what clients felt, for a run that is just over."""
    summary = run.summary()
    return [load_table(summary)] if summary and run.history("sessions") else []


def draw(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Throughput and quality over time; the blocks of each arm; what reloads cost."""
    try:
        return rebalance_figures({kind: run.history(kind) for kind in FIGURE_KINDS}, summary, run.info)
    except (KeyError, TypeError) as error:
        raise DamagedRun(f"the history lacks {error}") from error


def draw_repeats(runs: Runs) -> Any:
    """What an arm came to over the scenarios of the timeline, and the move on a slow disk, run after run."""
    under_load = runs[0][0]["exp"] == "rebalance_under_load"
    metrics = {**REPEATED, **(REPEATED_UNDER_LOAD if under_load else {})}
    slow = [
        replace(panel, title="", words="seconds out of service, slow disk")
        for panel in scenario_panels(runs, "out_of_service_s")
        if panel.scenario == rebalance.SLOW_DISK
    ]
    return repeats_figure(runs, [*arms_panels(runs, metrics), *slow], "Rebalancing, run after run")
