"""Judge a stored run, or what is published, again: ``python -m swarmlab.check RUN_DIR|results|results/tables/NAME``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from swarmlab.analysis.checks import EXIT_CODES, Finding, Verdict, assume, conclude, guard, worst
from swarmlab.analysis.tables import findings_table, tree_table
from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.judges.expected import read_expected
from swarmlab.judges.registry import judge_of
from swarmlab.judges.tree import check_name, check_tree
from swarmlab.record.inventory import check_inventory
from swarmlab.record.load import DamagedRun, load_run, shown, write_tables
from swarmlab.record.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


@dataclass(frozen=True)
class Summary:
    """What a run shows.

    :param exp: the experiment
    :param arms: arm to metric to value, over all scenarios
    :param scenarios: scenario to arm to metric to value
    :param findings: everything that was checked
    :param by_repeat: scenario to arm to metric to its values, one of each population, where there are several
    """

    exp: str
    arms: dict[str, dict[str, Any]]
    scenarios: dict[str, dict[str, dict[str, Any]]]
    verdict: Verdict
    findings: tuple[Finding, ...]
    by_repeat: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def reasons(self) -> list[str]:
        """What speaks against the run; for one that holds, how much was checked."""
        against = [str(finding) for finding in self.findings if finding.verdict is not Verdict.HOLDS]
        assumptions = sum(finding.assumption for finding in self.findings)
        checks = len(self.findings) - assumptions
        if not against and not checks:
            nothing = f"of {self.exp} no expectation is about a scenario and arm of this run"
            return [f"unknown: nothing to compare: {nothing} ({assumptions} assumptions are met)"]
        return against or [f"holds: {checks} checks hold and {assumptions} assumptions are met"]

    def as_dict(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        apart = {"by_repeat": self.by_repeat} if self.by_repeat else {}
        return {
            "arms": self.arms, "scenarios": self.scenarios, **apart, "verdict": self.verdict.value,
            "reasons": self.reasons,
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
    if not run.is_raw:
        published = (
            "the folder of a run with its history; what is published is checked in results/tables/NAME"
        )
        raise BadInput("run_dir", str(run_dir), published)
    judging = judge_of(run.info["exp"], f"{Path(run_dir) / 'run.json'}: exp")
    measured = judging.measure(run, read_expected(run.info["exp"], expected))
    inventory = guard("history", lambda: (assume(*entry) for entry in check_inventory(run)))
    findings = (*measured.findings, *inventory)
    summary = Summary(
        run.info["exp"], measured.arms, measured.scenarios, conclude(findings), findings, measured.by_repeat
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
    parser = Arguments(
        prog="python -m swarmlab.check",
        description="Judge a stored run, or everything that is published, again. Exit code: 0 holds, 1 fails, "
        "3 unknown, 2 bad input.",
    )
    parser.add_argument(
        "path", type=Path, metavar="RUN_DIR|RESULTS",
        help="the folder of a run, for example results/runs/failover/latest, of all that is published (results), or of "
        "one of these (results/tables/failover)",
    )  # fmt: skip
    parser.add_argument(
        "--expected", type=Path, help="what a run must show (default: experiments/<exp>/expected.yaml)"
    )
    parser.add_argument("--all", action="store_true", help="list what holds, too")
    options = parser.parse_args(argv)
    console = Console()
    try:
        if (results := _published(options.path)) is not None:
            if options.expected is not None:
                return refuse(BadInput("--expected", str(options.expected), "with the folder of a run only"))
            return show_tree(*results, console, everything=options.all)
        summary = judge(options.path, expected=options.expected)
    except (BadInput, DamagedRun) as error:
        return refuse(error)
    if options.all:
        console.print(findings_table(summary.findings))
    show(summary, console)
    return summary.exit_code


def _published(path: Path) -> tuple[Path, str | None] | None:
    """A folder of published results, and the name where the path is that of one of them; None if it is neither."""
    if not (path / "tables").is_dir():
        return None
    if not (path / "run.json").exists():
        return path, None
    whole = path.resolve()  # "." and ".." have no name
    one = not (path / "history").is_dir() and whole.parent.name == "tables"
    return (shown(whole.parent.parent), whole.name) if one else None


def show_tree(results: Path, name: str | None, console: Console, *, everything: bool = False) -> int:
    """Check published results and print a line for each; the exit code is that of the worst.

    :param name: of the only one to check; None means all
    :raises BadInput, DamagedRun: if something cannot be read
    """
    found = check_tree(results) if name is None else check_name(results, name)
    verdicts = {name: conclude(findings) for name, findings in found.items()}
    for findings in found.values() if everything else ():
        console.print(findings_table(findings))
    console.print(tree_table(found, verdicts))
    against = [
        f"{of} / {one}"
        for of, findings in found.items()
        for one in findings
        if one.verdict is not Verdict.HOLDS
    ]
    for line in against:
        console.print(f"  {line}", markup=False, highlight=False)
    verdict = worst(verdicts.values())
    console.print(f"verdict: {verdict.value}", style="bold")
    return EXIT_CODES[verdict]


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


if __name__ == "__main__":
    sys.exit(main())
