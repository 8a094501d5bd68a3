"""Runs an experiment: ``python -m swarmlab.run +exp=failover [overrides]``.

Exit codes: 0 the run holds what it should show, 1 it does not, or the swarm failed; 2 bad input, nothing was
started; 3 the data cannot support a verdict; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from swarmlab import check
from swarmlab import settings as run_settings
from swarmlab.bridge.models import ensure_model
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.figures import draw_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.failover import Failover
from swarmlab.scenarios.failover_files import load_scenarios
from swarmlab.scenarios.progress import ConsoleProgress
from swarmlab.settings import RunSettings
from swarmlab.swarm.spec import SwarmSpec

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


def failover(settings: RunSettings) -> Failover:
    """The failover experiment that the settings describe, checked.

    :raises BadInput: before anything is started
    """
    model = settings.model
    checkpoint = ensure_model(model.path or model.name, settings.models_dir, model.n_blocks, model.seed)
    scenarios = load_scenarios(settings.scenarios, checkpoint.n_blocks)
    swarm = asdict(settings.swarm)
    throughput_tps, argv = swarm.pop("throughput_tps"), tuple(swarm.pop("argv"))
    weights_bytes = sum(file.stat().st_size for file in checkpoint.path.glob("*.safetensors"))
    spec = SwarmSpec(
        checkpoint.path,
        checkpoint.dht_prefix,
        checkpoint.n_blocks,
        (),
        block_bytes=weights_bytes
        * 4
        // ITEM_BYTES[checkpoint.dtype]
        // checkpoint.n_blocks,  # held as float32
        argv=argv,
        **swarm,
    )
    experiment = Failover(
        checkpoint=checkpoint,
        scenarios=scenarios,
        arms=settings.arms,
        swarm=spec,
        throughput_tps=throughput_tps,
        client=settings.client.as_petals(),
        recovery=asdict(settings.recovery_settings()),
        deadline_s=settings.deadline_s,
        floor_repeats=settings.floor_repeats,
        seed=settings.seed,
    )
    experiment.check()
    return experiment


EXPERIMENTS: dict[str, Callable[[RunSettings], Failover]] = {"failover": failover}


def execute(
    settings: RunSettings, resolved: dict[str, Any], argv: Sequence[str], overrides: Sequence[str]
) -> int:
    """Run the experiment, judge it, show it.

    :returns: the exit code
    :raises BadInput: before anything is started
    """
    experiment = EXPERIMENTS[settings.experiment](settings)
    run_dir = RunDir.create(
        settings.results_dir,
        settings.experiment,
        config=resolved,
        argv=argv,
        overrides=overrides,
        seed=settings.seed,
        world="real",
        arms=settings.arms,
        model={"id": experiment.checkpoint.model_id, "hash": experiment.checkpoint.sha256},
        device=settings.swarm.device,
    )
    run_dir.update(scenarios=[scenario.name for scenario in experiment.scenarios])
    progress = ConsoleProgress(total=len(experiment.scenarios) * (2 + len(settings.arms)))
    try:
        with run_dir, progress:
            experiment.run(run_dir, progress)
    except KeyboardInterrupt:
        progress.say(f"Interrupted; what was recorded is in {run_dir.path}")
        return EXIT_INTERRUPTED
    except SwarmFailed as error:
        progress.say(f"The swarm failed: {error}\nWhat was recorded is in {run_dir.path}")
        return EXIT_FAILED
    return show(run_dir.path, progress)


def show(path: Path, progress: ConsoleProgress) -> int:
    """Judge a finished run, draw it, and print the comparison; the exit code follows from the verdict."""
    summary = check.judge(path)
    figures = draw_run(path)
    check.show(summary, progress.console)
    progress.say(f"run folder: {path}")
    progress.say(f"figure:     {figures[0]}")
    return summary.exit_code


@hydra.main(config_path="../../configs", config_name="config", version_base="1.3")
def _hydra_main(config: DictConfig) -> None:
    overrides = list(HydraConfig.get().overrides.task)
    try:
        settings, resolved = run_settings.from_config(config)
        code = execute(settings, resolved, sys.argv, overrides)
    except BadInput as error:
        print(f"swarmlab: {error}", file=sys.stderr)
        code = EXIT_BAD_INPUT
    if code or HydraConfig.get().mode is RunMode.RUN:
        sys.exit(code)


def main() -> None:
    """Check the command line first, so that bad input costs one line, then hand over to Hydra."""
    overrides = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    run_settings.register()
    try:
        if (
            len(overrides) == len(sys.argv) - 1
        ):  # options such as --help, --cfg and -m are Hydra's own business
            run_settings.load(overrides)
        _hydra_main()
    except BadInput as error:
        print(f"swarmlab: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
