"""Judges +exp=failover."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from swarmlab.analysis.checks import assume, guard
from swarmlab.analysis.evidence import TOLERANCE, Evidence
from swarmlab.analysis.failover import measure as measure_failover
from swarmlab.analysis.failover import summarise
from swarmlab.analysis.failover_checks import check_failover
from swarmlab.analysis.plots.failover import failover_figure
from swarmlab.analysis.plots.outcomes import outcomes_figure
from swarmlab.analysis.plots.repeats import Runs, scenario_panels
from swarmlab.analysis.plots.scenario_dots import scenario_dots_figure
from swarmlab.analysis.tables import comparison_table, texts_table
from swarmlab.errors import BadInput
from swarmlab.judges.measured import Measured
from swarmlab.record.load import DamagedRun, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from rich.table import Table

    from swarmlab.analysis.checks import Finding

    States = Callable[[str, str], dict[str, np.ndarray] | None]

PANELS = (
    "kill_last",
    "kill_first",
    "kill_middle",
    "split_replacement",
    "batch_of_3",
    "prefill",
)  # where few must do
FIGURE_KINDS = ("steps", "faults", "failovers", "floors", "outcomes")


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Every outcome judged again from the stored tokens and hidden states.

    :raises BadInput: if ``expected`` has no scenarios with arms
    """
    damaged: list[Finding] = []
    numbers: dict[str, Any] = {"arms": {}, "scenarios": {}}
    wanted = planned(_checked(expected), run.info)

    def note(scenario: str, arm: str, error: DamagedRun) -> None:
        damaged.append(assume(f"{scenario} / {arm}", False, str(error)))

    def findings() -> Iterator[Finding]:
        history = {kind: run.history(kind) for kind in run.kinds}
        evidence = Evidence(history, _states(run, note), _tolerance(run))
        numbers.update(summarise(measure_failover(evidence)))
        yield from check_failover(evidence, numbers["scenarios"], wanted, str(run.info.get("status")))

    found = guard("record", findings) + damaged
    return Measured(numbers["arms"], numbers["scenarios"], tuple(found))


def table(summary: Mapping[str, Any]) -> Table:
    return comparison_table(summary)


def texts(run: Run) -> list[Table]:
    """What each arm wrote, per scenario, of a model with a tokenizer."""
    rows = [row for row in run.history("outcomes") if row["text"]]
    scenarios = dict.fromkeys(row["scenario"] for row in rows)
    return [
        texts_table(name, {row["arm"]: row["text"] for row in rows if row["scenario"] == name})
        for name in scenarios
    ]


def draw(run: Run, summary: Mapping[str, Any]) -> Any:
    """The figures of a judged run, of matplotlib: time around the failure, and how everybody ended.

    The first has a panel per scenario; of a run with many it shows a few, and says so.
    """
    evidence, scenarios = (
        Evidence({kind: run.history(kind) for kind in FIGURE_KINDS}, _states(run)),
        summary["scenarios"],
    )
    default = [name for name in PANELS if name in scenarios]
    shown = list(scenarios) if len(scenarios) <= len(PANELS) else default or list(scenarios)[: len(PANELS)]
    timed = failover_figure(
        evidence, {name: scenarios[name] for name in shown}, run.info, of_scenarios=len(scenarios)
    )
    return {"": timed, "outcomes": outcomes_figure([(run.info, summary)])}


def draw_repeats(runs: Runs) -> dict[str, Any]:
    """How everybody ended in any of the runs, and seconds from the fault to a right token over repeats."""
    repeats = scenario_dots_figure(
        runs, scenario_panels(runs, "fault_to_correct_s"), "How long until a token is right again, run after run",
        words="seconds from the fault to the next right token (log scale)",
    )  # fmt: skip
    return {"outcomes": outcomes_figure(runs), "repeats": repeats}


def planned(expected: dict[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """What a run must show of what it set out to do: only its own scenarios and arms.

    A scenario without expectations stays in, so that it is reported as not judged.
    """
    names = info.get("scenarios", list(expected["scenarios"]))
    arms = info.get("arms")
    scenarios = {}
    for name in names:
        entry = expected["scenarios"].get(name, {"arms": {arm: {} for arm in arms or ()}})
        wanted = {arm: metrics for arm, metrics in entry["arms"].items() if arms is None or arm in arms}
        scenarios[name] = {**entry, "arms": wanted}
    return {**expected, "scenarios": scenarios}


def _checked(expected: dict[str, Any]) -> dict[str, Any]:
    scenarios = expected.get("scenarios")
    sound = isinstance(scenarios, dict) and all(
        isinstance(s, dict) and "arms" in s for s in scenarios.values()
    )
    if not sound:
        raise BadInput("expected", "scenarios", "scenarios, each with arms")
    return expected


def _states(run: Run, note: Callable[[str, str, DamagedRun], None] | None = None) -> States:
    @cache
    def states(scenario: str, arm: str) -> dict[str, np.ndarray] | None:
        try:
            return run.states(scenario, arm)
        except DamagedRun as error:
            if note is not None:
                note(scenario, arm, error)
            return None  # the tokens are in the history, too

    return states


def _tolerance(run: Run) -> float:
    tolerance = run.config.get("tolerance", TOLERANCE)
    if not isinstance(tolerance, (int, float)) or not tolerance > 0:
        raise DamagedRun(f"config.yaml: tolerance is {tolerance!r}")
    return float(tolerance)
