"""Judge a stored run again, without a swarm: ``python -m swarmlab.check RUN_DIR``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from swarmlab.analysis.checks import EXIT_CODES, Finding, Verdict, assume, conclude, guard
from swarmlab.analysis.evidence import TOLERANCE, Evidence
from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.failover_checks import check_failover
from swarmlab.analysis.tables import comparison_table, findings_table
from swarmlab.errors import BadInput
from swarmlab.record.load import DamagedRun, Run, load_run, write_tables
from swarmlab.record.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
EXPERIMENTS_JUDGED = ("failover",)


@dataclass(frozen=True)
class Summary:
    """What a run shows.

    :param arms: arm to metric to value, over all scenarios
    :param scenarios: scenario to arm to metric to value
    :param findings: everything that was checked
    """

    arms: dict[str, dict[str, Any]]
    scenarios: dict[str, dict[str, dict[str, Any]]]
    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def reasons(self) -> list[str]:
        """What speaks against the run; for one that holds, how much was checked."""
        against = [str(finding) for finding in self.findings if finding.verdict is not Verdict.HOLDS]
        assumptions = sum(finding.assumption for finding in self.findings)
        met = f"holds: {len(self.findings) - assumptions} checks hold and {assumptions} assumptions are met"
        return against or [met]

    def as_dict(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {
            "arms": self.arms, "scenarios": self.scenarios, "verdict": self.verdict.value, "reasons": self.reasons,
        }  # fmt: skip


def judge(run_dir: Path | str, *, expected: Path | None = None) -> Summary:
    """Judge a stored run from its raw record, and write its ``summary.json`` and ``tables/`` again.

    :param expected: what it must show; None means ``experiments/<exp>/expected.yaml``
    :raises BadInput: if the folder holds no run, or nothing says what the run must show
    """
    try:
        run = load_run(run_dir)
    except DamagedRun as error:
        raise BadInput("run_dir", str(run_dir), f"the folder of a readable run; {error}") from error
    summary = _judge(run, planned(_read_expected(run, expected), run.info))
    try:
        write_json(run.path / "summary.json", summary.as_dict())
        write_tables(run)
    except DamagedRun:
        pass  # the summary says so already
    except OSError as error:
        raise BadInput("run_dir", str(run_dir), f"a folder that can be written ({error.strerror})") from error
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m swarmlab.check",
        description="Judge a stored run again. Exit code: 0 holds, 1 fails, 3 unknown, 2 bad input.",
    )
    parser.add_argument(
        "run_dir", type=Path, help="the folder of a run, for example results/runs/failover/latest"
    )
    parser.add_argument(
        "--expected", type=Path, help="what it must show (default: experiments/<exp>/expected.yaml)"
    )
    parser.add_argument("--all", action="store_true", help="list what holds, too")
    options = parser.parse_args(argv)
    try:
        summary = judge(options.run_dir, expected=options.expected)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    console = Console()
    if options.all:
        console.print(findings_table(summary.findings))
    show(summary, console)
    return summary.exit_code


def show(summary: Summary, console: Console) -> None:
    """Print the comparison, and the verdict with its reasons."""
    console.print(comparison_table(summary.as_dict()))
    console.print(f"verdict: {summary.verdict.value}", style="bold")
    for reason in summary.reasons:
        console.print(f"  {reason}", markup=False, highlight=False)


def _judge(run: Run, expected: dict[str, Any]) -> Summary:
    damaged: list[Finding] = []

    @cache
    def states(scenario: str, arm: str) -> dict[str, np.ndarray] | None:
        try:
            return run.states(scenario, arm)
        except DamagedRun as error:
            damaged.append(assume(f"{scenario} / {arm}", False, str(error)))
            return None

    numbers: dict[str, Any] = {"arms": {}, "scenarios": {}}

    def findings() -> Iterator[Finding]:
        evidence = Evidence({kind: run.history(kind) for kind in run.kinds}, states, _tolerance(run))
        numbers.update(summarise(measure(evidence)))
        yield from check_failover(evidence, numbers["scenarios"], expected, str(run.info.get("status")))

    found = guard("record", findings) + damaged
    return Summary(numbers["arms"], numbers["scenarios"], conclude(found), tuple(found))


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


def _tolerance(run: Run) -> float:
    tolerance = run.config.get("tolerance", TOLERANCE)
    if not isinstance(tolerance, (int, float)) or not tolerance > 0:
        raise DamagedRun(f"config.yaml: tolerance is {tolerance!r}")
    return float(tolerance)


def _read_expected(run: Run, path: Path | None) -> dict[str, Any]:
    exp = run.info["exp"]
    if exp not in EXPERIMENTS_JUDGED:
        raise BadInput("run_dir", exp, f"a run of {', '.join(EXPERIMENTS_JUDGED)}")
    source = path or EXPERIMENTS / exp / "expected.yaml"
    try:
        expected = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput("expected", str(source), f"a readable YAML file ({type(error).__name__})") from error
    scenarios = expected.get("scenarios") if isinstance(expected, dict) else None
    if not isinstance(scenarios, dict) or not all(
        isinstance(s, dict) and "arms" in s for s in scenarios.values()
    ):
        raise BadInput("expected", str(source), "scenarios, each with arms")
    return expected


if __name__ == "__main__":
    sys.exit(main())
