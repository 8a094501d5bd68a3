"""Judges experiments on simulated swarms: +exp=appendix_e and +exp=churn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.balance import by_repeat, summed_up
from swarmlab.analysis.balance import measure as measure_balance
from swarmlab.analysis.balance_checks import check_expected, check_plan, check_samples
from swarmlab.analysis.balance_tables import balance_table
from swarmlab.analysis.checks import guard
from swarmlab.analysis.clients import KINDS as CLIENT_KINDS
from swarmlab.analysis.clients import measure_clients, summed_up_clients
from swarmlab.analysis.plots.balance import balance_figure
from swarmlab.analysis.plots.clients import clients_figure, has_clients
from swarmlab.analysis.plots.repeats import Runs, repeats_figure, scenario_panels
from swarmlab.analysis.plots.sweep import Axis, is_sweep, sweep_figure
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import DamagedRun, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.checks import Finding

KINDS = ("balance", "reloads", "decisions", *CLIENT_KINDS)
FIGURE_KINDS = ("balance", "reloads", "delivered")
LIFETIMES = Axis("sim.lifetime_min_s", "mean lifetime {} h", unit=3600.0)
LOAD_TIMES = Axis("sim.s_per_block", "seconds to load one block")


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every number again from the stored history.

    :raises BadInput: if ``expected`` has no scenarios
    """
    require_mappings(expected, "scenarios")
    scenarios: dict[str, Any] = {}
    repeats: dict[str, Any] = {}

    def findings() -> Iterator[Finding]:
        sim = run.config["sim"]
        history = {kind: run.history(kind) for kind in KINDS}
        swarms = measure_balance(history, warm_up_s=sim["warm_up_s"], sample_every_s=sim["sample_every_s"])
        clients = measure_clients(history, warm_up_s=sim["warm_up_s"])
        _put_together(scenarios, summed_up(swarms), summed_up_clients(clients))
        _put_together(repeats, by_repeat(swarms), by_repeat(clients))
        names, arms = list(run.info["scenarios"]), list(run.info["arms"])
        samples = math.ceil(sim["duration_s"] / sim["sample_every_s"])
        yield from check_plan(run.info)
        yield from check_samples(history, scenarios=names, arms=arms, repeats=sim["repeats"], samples=samples)
        yield from check_expected({name: scenarios.get(name, {}) for name in names}, expected, arms)

    found = guard("record", findings)
    return Measured(_over_scenarios(scenarios), scenarios, tuple(found), repeats)


def table(summary: Mapping[str, Any]) -> Table:
    return balance_table(summary, "Simulated swarm: share of the bound, and what moving cost")


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """Throughput over time for each arm of the first population; what clients got, where a scenario has them."""
    history = {kind: run.history(kind) for kind in FIGURE_KINDS}
    scenarios = summary["scenarios"]
    alone = {name: arms for name, arms in scenarios.items() if not has_clients(arms)}
    try:
        figures = {
            "": balance_figure(history, alone, run.info) if alone else None,
            # clients do not change where servers go: of scenarios with them this is the figure
            "tokens" if alone else "": clients_figure(history["delivered"], scenarios, run.info),
        }
    except (KeyError, TypeError) as error:
        raise DamagedRun(f"{run.source('balance')} lacks {error}") from error
    return {suffix: figure for suffix, figure in figures.items() if figure is not None}


def draw_repeats(runs: Runs) -> Any:
    """Share of the bound by scenario and arm, over seeds, or over the settings of a multirun."""
    if runs[0][0]["exp"] == "churn" and is_sweep(runs):
        (scenario,) = runs[0][0]["scenarios"]
        share = "weakest block, share of the bound"
        return {
            # in the place of the figure of one cell
            "": sweep_figure(runs, LIFETIMES, LOAD_TIMES, scenario, "swarm_tps_over_optimal", share)
        }
    return repeats_figure(
        runs, scenario_panels(runs, "swarm_tps_over_optimal_mean"), "The same rules, several populations",
        words="throughput of the weakest block, share of the bound (mean over time)", names={"optimal": "best found"},
    )  # fmt: skip


def _put_together(into: dict[str, Any], *parts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    for part in parts:
        for scenario, arms in part.items():
            for arm, metrics in arms.items():
                into.setdefault(scenario, {}).setdefault(arm, {}).update(metrics)


def _over_scenarios(scenarios: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    # One value per scenario: each is another question, so nothing is averaged over them.
    arms: dict[str, dict[str, Any]] = {}
    for scenario, measured in scenarios.items():
        for arm, metrics in measured.items():
            for metric, value in metrics.items():
                arms.setdefault(arm, {})[f"{scenario}.{metric}"] = value
    return arms
