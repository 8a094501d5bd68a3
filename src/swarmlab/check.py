"""Judge a stored run again, without a swarm: ``python -m swarmlab.check RUN_DIR``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from swarmlab.analysis.checks import EXIT_CODES, Finding, Verdict, conclude
from swarmlab.analysis.tables import findings_table
from swarmlab.errors import BadInput
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import DamagedRun, Run, load_run, write_tables
from swarmlab.record.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@dataclass(frozen=True)
class Summary:
    """What a run shows.

    :param exp: the experiment
    :param arms: arm to metric to value, over all scenarios
    :param scenarios: scenario to arm to metric to value
    :param findings: everything that was checked
    """

    exp: str
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
    if not (run.path / "history").is_dir():
        published = "the folder of a run with its history; published tables cannot be judged again"
        raise BadInput("run_dir", str(run_dir), published)
    judging = judge_of(run.info["exp"])
    measured = judging.measure(run, _read_expected(run, expected))
    summary = Summary(
        run.info["exp"], measured.arms, measured.scenarios, conclude(measured.findings), measured.findings
    )
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


def show(summary: Summary, console: Console, extra_tables: Sequence[Table] = ()) -> None:
    """Print the comparison, and the verdict with its reasons.

    :param extra_tables: shown first
    """
    for table in extra_tables:
        console.print(table)
    console.print(judge_of(summary.exp).table(summary.as_dict()))
    console.print(f"verdict: {summary.verdict.value}", style="bold")
    for reason in summary.reasons:
        console.print(f"  {reason}", markup=False, highlight=False)


def _read_expected(run: Run, path: Path | None) -> dict[str, Any]:
    source = path or EXPERIMENTS / run.info["exp"] / "expected.yaml"
    try:
        expected = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput("expected", str(source), f"a readable YAML file ({type(error).__name__})") from error
    if not isinstance(expected, dict):
        raise BadInput("expected", str(source), "a YAML mapping")
    return expected


if __name__ == "__main__":
    sys.exit(main())
