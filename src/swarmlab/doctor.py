"""Is this machine ready for a swarm? Prints one line per check; exit code 1 if one fails.

`python -m swarmlab.doctor plan +exp=NAME [overrides]` shows instead what that run's servers would need, and refuses
(exit code 2) what cannot fit, or cannot be ready in time. `... settings +exp=NAME [overrides]` says whether
`swarmlab.run` would take this command line on a machine that has what it names; nothing is started.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.health.finding import Finding, Status
from swarmlab.health.machine import GIB, check_machine, measure_memory_bytes
from swarmlab.health.packages import check_packages
from swarmlab.health.probe import check_probes, run_probe
from swarmlab.health.swarm_plan import CPU_RATES, GPU_RATES, Place, check_plan, render


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["plan"]:
        return plan(given[1:])
    if given[:1] == ["settings"]:
        return check_settings(given[1:])
    parser = Arguments(
        prog="python -m swarmlab.doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs would be written"
    )
    options = parser.parse_args(given)
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


def plan(arguments: Sequence[str]) -> int:
    """Print what the servers of a run would need; nothing is started or loaded.

    :returns: the exit code: 0 if all of it fits and loads in time, 2 if not, or for settings that cannot work
    """
    parser = Arguments(
        prog="python -m swarmlab.doctor plan",
        description="What the servers of a run would need: memory, seconds to load, disk.",
    )
    parser.add_argument(
        "--gpus", help="GiB of each GPU that servers share, as in 24,24,80 (default: this machine's)"
    )
    parser.add_argument(
        "--disk-mb-s", type=_positive, default=500.0, help="what the disk reads, MB/s (%(default)g)"
    )
    parser.add_argument("--stored", action="store_true", help="all blocks are in the block store already")
    parser.add_argument("overrides", nargs="*", help="as for swarmlab.run: +exp=NAME model=NAME ...")
    options = parser.parse_args(arguments)
    # these need the packages, of which the examination must be able to say that they are missing
    from swarmlab import settings as run_settings  # noqa: PLC0415
    from swarmlab.scenarios import planning  # noqa: PLC0415

    try:
        settings, _ = run_settings.load(options.overrides, elsewhere=True)
        places = _places(options.gpus, settings.swarm.device, planning.machine(measure_memory_bytes()))
        rates = GPU_RATES if places[0].name.startswith("gpu") else CPU_RATES
        plans = planning.plans_of(
            settings, places, replace(rates, disk_bytes_per_s=options.disk_mb_s * 1e6), stored=options.stored
        )
        for one in plans:
            print(render(one), end="\n\n", flush=True)
        if note := planning.is_here(settings):
            print(f"note: {note}")
        here = options.gpus is None and any(one.store_bytes for one in plans)
        for one in plans:
            check_plan(one, shutil.disk_usage(Path.cwd()).free if here else None)
        planning.check_in_time(settings, plans)
    except BadInput as error:
        return refuse(error)
    print("It fits.")
    return 0


def check_settings(overrides: Sequence[str]) -> int:
    """Whether a run would take these settings; the exit code: 0 or 2."""
    from swarmlab import settings as run_settings  # noqa: PLC0415 - as above

    try:
        run_settings.load(overrides, elsewhere=True)
    except BadInput as error:
        return refuse(error)
    return 0


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return float(text)


def _places(gpus: str | None, device: str, machine: Place) -> list[Place]:
    """The memories that servers share.

    :param gpus: GiB of each, separated by commas
    :raises BadInput: if they cannot be read, or a GPU is asked for and none is there
    """
    if gpus is not None:
        try:
            sizes = [float(size) * GIB for size in gpus.split(",")]
        except ValueError:
            sizes = []
        if not sizes or not all(0 < size < float("inf") for size in sizes):
            raise BadInput("--gpus", gpus, "GiB of each GPU, as in 24,24,80")
        return [Place(f"gpu{index}", round(size)) for index, size in enumerate(sizes)]
    if not device.startswith("cuda"):
        return [machine]
    totals = run_probe("swarmlab.health.gpu_memory").values.get("total_bytes", [])
    if not totals:
        raise BadInput(
            "swarm.device", device, "a GPU that torch finds here, or --gpus GIB,... to plan for others"
        )
    return [Place(f"gpu{index}", total) for index, total in enumerate(totals)]


if __name__ == "__main__":
    sys.exit(main())
