"""Runs an experiment: ``python -m swarmlab.run +exp=failover [overrides]``.

Exit codes: 0 the run holds what it should show, 1 it does not, or the swarm failed; 2 bad input, nothing was
started; 3 the data cannot support a verdict; 130, 143 or 129 ended by Ctrl-C, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":  # what is imported below takes seconds, in which Ctrl-C is to cost one line, too
    from swarmlab.errors import leaving_on_ctrl_c

    leaving_on_ctrl_c()

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from swarmlab import check
from swarmlab import settings as run_settings
from swarmlab.errors import EXIT_BAD_INPUT, INTERRUPTED, BadInput, SwarmFailed, leave, refuse
from swarmlab.figures import draw_run
from swarmlab.health.device_name import device_name
from swarmlab.judges.registry import judge_of
from swarmlab.record.jobs import Job, JobBook
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.report.page import write_report
from swarmlab.scenarios.multirun import show_jobs
from swarmlab.scenarios.progress import ConsoleProgress
from swarmlab.scenarios.registry import build
from swarmlab.settings import RunSettings

EXIT_FAILED = 1
WORST_LAST = (0, 3, EXIT_BAD_INPUT, EXIT_FAILED)  # of several runs the worst decides


def execute(
    settings: RunSettings,
    resolved: dict[str, Any],
    argv: Sequence[str],
    overrides: Sequence[str],
    on_folder: Callable[[Path], None] = lambda _: None,
) -> int:
    """Run the experiment, judge it, show it.

    :param on_folder: told of the run folder, once there is one
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
        device=_device(settings),
    )
    on_folder(run_dir.path)
    run_dir.update(scenarios=list(experiment.parts))
    if experiment.world == "real":
        run_dir.update(network=settings.network.label(), cluster=settings.cluster.kind)
    progress = ConsoleProgress(total=experiment.n_units)
    progress.say(f"{experiment.describe()}\nrun folder: {run_dir.path}")
    try:
        with run_dir, progress, ended_by_signals(lambda name: run_dir.foresee("interrupted", reason=name)):
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


def _device(settings: RunSettings) -> str:
    """With its name, if it is this machine's."""
    device, cluster = settings.swarm.device, settings.cluster
    return device_name(device, cluster.gpus) if cluster.kind == "local" else device


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
def ended_by_signals(on_signal: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does, unless whoever started us has them ignored.

    :param on_signal: told the name of the signal at once, Ctrl-C's too: unwinding takes its time, and may be cut short
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        on_signal(signal.Signals(number).name)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    own = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    taken = [number for number, handler in own.items() if signal.getsignal(number) == handler]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, own[number])


def _signal_of(leaving: BaseException) -> signal.Signals:
    """Which signal ended the run."""
    code = leaving.code if isinstance(leaving, SystemExit) else None
    return signal.Signals(code - 128) if isinstance(code, int) else signal.SIGINT


def main() -> None:
    """Check the command line first, so that bad input costs one line, then hand over to Hydra."""
    if signal.getsignal(signal.SIGINT) is leave:  # everything is imported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = run_settings.spelled_out(sys.argv[1:])
    # Hydra wants its flag before the overrides
    sys.argv[1:] = sorted(arguments, key=lambda argument: argument not in run_settings.MULTIRUN)
    run_settings.register()
    try:
        jobs = run_settings.check_command_line(sys.argv[1:])
        is_multirun = jobs and not run_settings.MULTIRUN.isdisjoint(sys.argv)
        sys.exit(_run_jobs(jobs[0].results_dir) if is_multirun else _run_job())
    except BadInput as error:
        sys.exit(refuse(error))
    except KeyboardInterrupt:
        sys.stderr.write(INTERRUPTED)
        sys.exit(128 + signal.SIGINT)


def _run_job() -> int:
    """The one job of the command line, or whatever else Hydra is asked for; the exit code."""
    codes: list[int] = []

    @hydra.main(config_path=str(run_settings.CONFIGS), config_name="config", version_base="1.3")
    def job(config: DictConfig) -> None:
        codes.append(_do(config, sys.argv)[0])

    job()
    return codes[0] if codes else 0


def _run_jobs(results_dir: str) -> int:
    """All jobs of a multirun, wherever Hydra's launcher has them run; the exit code of the worst.

    :param results_dir: of the first; what they share is written there
    """
    # the function is sent to other processes with what it refers to
    book, argv = JobBook.below(results_dir), list(sys.argv)
    register = run_settings.register
    sys.argv.append(f"hydra.sweep.dir={run_settings.quoted(str(book.folder))}")

    @hydra.main(config_path=str(run_settings.CONFIGS), config_name="config", version_base="1.3")
    def job(config: DictConfig) -> None:
        register()
        code, run_dir = _do(config, argv)
        told = HydraConfig.get()
        book.add(Job(int(told.job.num), list(told.overrides.task), code, run_dir))
        if code >= 128:  # a signal ends the whole multirun
            sys.exit(code)

    job()
    found = book.jobs()
    show_jobs(found, book.write_summary())
    by_signal = [one.exit_code for one in found if one.exit_code not in WORST_LAST]
    return (
        by_signal[0] if by_signal else max((one.exit_code for one in found), key=WORST_LAST.index, default=1)
    )


def _do(config: DictConfig, argv: Sequence[str]) -> tuple[int, str | None]:
    """One job: its exit code, and its run folder if it got one."""
    folders: list[Path] = []
    try:
        settings, resolved = run_settings.from_config(config)
        overrides = list(HydraConfig.get().overrides.task)
        code = execute(settings, resolved, argv, overrides, folders.append)
    except BadInput as error:
        code = refuse(error)
    return code, str(folders[0].resolve()) if folders else None


if __name__ == "__main__":
    main()
