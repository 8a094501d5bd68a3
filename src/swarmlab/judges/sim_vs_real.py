"""Judges +exp=sim_vs_real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis import sim_vs_real
from swarmlab.analysis.checks import assume, guard
from swarmlab.analysis.plots.repeats import Runs, arms_panels, repeats_figure
from swarmlab.analysis.plots.sim_vs_real import agreement_figure
from swarmlab.analysis.rebalance_tables import agreement_table
from swarmlab.judges.expected import require_mappings
from swarmlab.judges.measured import Measured
from swarmlab.record.load import DamagedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from swarmlab.analysis.checks import Finding
    from swarmlab.record.load import Run

ERRORS = {
    "moves_error": "moves",
    "blocks_loaded_error": "blocks loaded",
    "out_of_service_s_error": "seconds out of service",
    "swarm_tps_mean_error": "mean throughput, tokens/s",
}
FIGURE_KINDS = ("balance", "reloads")


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every number again from the stored history.

    :raises BadInput: if ``expected`` has no tolerances
    """
    require_mappings(expected, "agreement")
    arms: dict[str, Any] = {}

    def findings() -> Iterator[Finding]:
        arms.update(sim_vs_real.by_arm({kind: run.history(kind) for kind in FIGURE_KINDS}))
        status = run.info.get("status")
        yield assume("run / status", status == "complete", f"the run is {status}")
        yield from sim_vs_real.check(arms, expected["agreement"], run.info)

    found = guard("record", findings)
    return Measured(arms, {"timeline": arms} if arms else {}, tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    return agreement_table(summary["arms"])


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """Swarm throughput of both worlds over time, arm by arm."""
    try:
        return agreement_figure({kind: run.history(kind) for kind in FIGURE_KINDS}, summary["arms"], run.info)
    except (KeyError, TypeError) as error:
        raise DamagedRun(f"the history lacks {error}") from error


def draw_repeats(runs: Runs) -> Any:
    """How far the mean of the simulations is from the real swarm, run after run."""
    return repeats_figure(
        runs, arms_panels(runs, ERRORS), "Simulated (mean) less real, run after run; 0: both agree"
    )
