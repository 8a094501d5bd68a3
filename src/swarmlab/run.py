"""Runs an experiment: ``python -m swarmlab.run +exp=failover [overrides]``.

Exit codes: 0 the run holds what it should show, 1 it does not, or the swarm failed; 2 bad input, nothing was
started; 3 the data cannot support a verdict; 130, 143 or 129 ended by Ctrl-C, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from swarmlab import check
from swarmlab import settings as run_settings
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.figures import draw_run
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.report.page import write_report
from swarmlab.scenarios.progress import ConsoleProgress
from swarmlab.scenarios.registry import build
from swarmlab.settings import RunSettings

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
MULTIRUN = {"-m", "--multirun"}
WORST_LAST = (0, 3, EXIT_BAD_INPUT, EXIT_FAILED)  # of several runs the worst decides


def execute(
    settings: RunSettings, resolved: dict[str, Any], argv: Sequence[str], overrides: Sequence[str]
) -> int:
    """Run the experiment, judge it, show it.

    :returns: the exit code
    :raises BadInput: before anything is started
    """
    experiment = build(settings)
    run_dir = RunDir.create(
        settings.results_dir,
        settings.experiment,
        config=resolved,
        argv=argv,
        overrides=overrides,
        seed=settings.seed,
        world=experiment.world,
        arms=settings.arms,
        model=experiment.model,
        device=settings.swarm.device,
    )
    run_dir.update(scenarios=list(experiment.parts))
    if experiment.world == "real":
        run_dir.update(network=settings.network.label(), cluster=settings.cluster.kind)
    progress = ConsoleProgress(total=experiment.n_units)
    progress.say(f"{experiment.describe()}\nrun folder: {run_dir.path}")
    try:
        with run_dir, progress, ended_by_signals():
            try:
                experiment.run(run_dir, progress)
            except (KeyboardInterrupt, SystemExit) as leaving:
                run_dir.finish("interrupted", reason=_signal_of(leaving).name)
                raise
    except (KeyboardInterrupt, SystemExit) as leaving:
        how = f"Interrupted ({_signal_of(leaving).name}), and nothing is left running"
        progress.say(f"{how}; what was recorded is in {run_dir.path}")
        return 128 + _signal_of(leaving)
    except (SwarmFailed, BadInput) as error:
        # bad input only now: something that was right at the start no longer is, such as free memory
        progress.say(f"The swarm failed: {error}\nWhat was recorded is in {run_dir.path}")
        return EXIT_FAILED
    return show(run_dir.path, progress)


def show(path: Path, progress: ConsoleProgress) -> int:
    """Judge a finished run, draw it, and print the comparison; the exit code follows from the verdict."""
    summary = check.judge(path)
    judging = judge_of(summary.exp)
    check.show(summary, progress.console, judging.texts(load_run(path)) if hasattr(judging, "texts") else ())
    progress.say(f"run folder: {path}")
    try:
        for figure in draw_run(path):
            progress.say(f"figure:     {path / 'figures' / figure.name}")
    except BadInput as error:  # it was the run that gave nothing to draw, not the user
        progress.say(f"no figure: {error}")
    try:
        progress.say(f"report:     {write_report(path)}")
    except BadInput as error:
        progress.say(f"no report: {error}")
    return summary.exit_code


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does, unless whoever started us has them ignored."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = {number: handler for number, handler in previous.items() if handler is signal.SIG_DFL}
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _signal_of(leaving: BaseException) -> signal.Signals:
    """Which signal ended the run."""
    code = leaving.code if isinstance(leaving, SystemExit) else None
    return signal.Signals(code - 128) if isinstance(code, int) else signal.SIGINT


def main() -> None:
    """Check the command line first, so that bad input costs one line, then hand over to Hydra."""
    arguments = [part for argument in sys.argv[1:] for part in _model_folder(argument)]
    # Hydra wants its flag before the overrides
    sys.argv[1:] = sorted(arguments, key=lambda argument: argument not in MULTIRUN)
    run_settings.register()
    codes: list[int] = []

    @hydra.main(config_path=str(run_settings.CONFIGS), config_name="config", version_base="1.3")
    def job(config: DictConfig) -> None:
        try:
            settings, resolved = run_settings.from_config(config)
            code = execute(settings, resolved, sys.argv, list(HydraConfig.get().overrides.task))
        except BadInput as error:
            code = _refuse(error)
        if code >= 128:  # a signal ends the whole multirun
            sys.exit(code)
        codes.append(code)

    try:
        _check_command_line(sys.argv[1:])
        job()
    except BadInput as error:
        sys.exit(_refuse(error))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(max(codes, key=WORST_LAST.index, default=0))


def _refuse(error: BadInput) -> int:
    print(f"swarmlab: {error}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _model_folder(argument: str) -> list[str]:
    """``model=FOLDER`` in the words of the config: it has a slash, and no name of a model has one."""
    name, _, value = argument.partition("=")
    quoted = value.replace("\\", r"\\").replace("'", r"\'")
    return ["model=path", f"model.path='{quoted}'"] if name == "model" and "/" in value else [argument]


def _check_command_line(arguments: Sequence[str]) -> None:
    """
    :raises BadInput: for the first job that cannot work, before any is run
    """
    options = {argument for argument in arguments if argument.startswith("-")}
    overrides = [argument for argument in arguments if argument not in options]
    if not options:
        run_settings.load(overrides)
    elif options <= MULTIRUN:
        for combination in run_settings.combinations(overrides):
            run_settings.load(combination)
    # other options, such as --help and --cfg, start nothing and are Hydra's own business


if __name__ == "__main__":
    main()
