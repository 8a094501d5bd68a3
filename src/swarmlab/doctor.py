"""Is this machine ready for a swarm? Prints one line per check; exit code 1 if one fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from swarmlab.health.finding import Finding, Status
from swarmlab.health.machine import check_machine
from swarmlab.health.packages import check_packages
from swarmlab.health.probe import check_probes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m swarmlab.doctor", description=__doc__)
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs would be written"
    )
    options = parser.parse_args(arguments)
    return report(_examine(options.results_dir))


def report(findings: Iterator[Finding]) -> int:
    """Print each finding as it comes, then the sum.

    :returns: the exit code: 1 if any check failed, else 0
    """
    counts = dict.fromkeys(Status, 0)
    for finding in findings:
        print(finding.line(), flush=True)
        counts[finding.status] += 1
    print(f"{counts[Status.OK]} ok, {counts[Status.WARN]} warnings, {counts[Status.FAIL]} failed")
    return 1 if counts[Status.FAIL] else 0


def _examine(results_dir: Path) -> Iterator[Finding]:
    yield from check_machine(results_dir, sys.version_info[:3])
    yield from check_packages()
    yield from check_probes()


if __name__ == "__main__":
    sys.exit(main())
