"""Which values the settings of a run may have, looked at before anything starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from swarmlab.analysis.failure_rates_grid import check as check_grid
from swarmlab.analysis.recovery_speed_grid import check as check_speed
from swarmlab.errors import BadInput
from swarmlab.health.capacity import QUANTS
from swarmlab.settings.choices import ARMS_OF, STEERED, WITHOUT_SCENARIOS, options
from swarmlab.settings.schema import ModelSettings, RunSettings, SoakSettings, SwarmSettings
from swarmlab.sim.settings import check as check_sim
from swarmlab.sim.settings import check_scale
from swarmlab.swarm.cluster import check as check_cluster
from swarmlab.swarm.cluster import check_files_reach
from swarmlab.swarm.machine import swarm_address
from swarmlab.swarm.network import check as check_network
from swarmlab.swarm.rebalancing import check_rebalance
from swarmlab.swarm.spec import THROUGHPUTS
from swarmlab.types import MAX_THROUGHPUT_TPS

DTYPES = ("float32", "float16", "bfloat16")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def check(settings: RunSettings, *, elsewhere: bool) -> None:
    """
    :param elsewhere: they are for another machine, so that what this one lacks does not matter
    :raises BadInput: for the first setting that cannot work
    """
    if settings.experiment not in ARMS_OF:
        raise BadInput("experiment", settings.experiment, ", ".join(ARMS_OF))
    _check_names("arms", settings.arms, ARMS_OF[settings.experiment])
    _check_scenarios(settings)
    _check_model(settings.model)
    _check_folders(settings)
    if settings.floor_repeats < 0:
        raise BadInput("floor_repeats", settings.floor_repeats, "0 or more")
    if not 0 <= settings.seed < 2**32:
        raise BadInput("seed", settings.seed, "0 to 2**32 - 1")
    client = settings.client
    if client.max_retries < 1:
        raise BadInput("client.max_retries", client.max_retries, "at least 1 (petals would retry for ever)")
    positive = {
        "deadline_s": settings.deadline_s,
        "tolerance": settings.tolerance,
        "minutes": settings.minutes,
        "client.request_timeout_s": client.request_timeout_s,
        "client.connect_timeout_s": client.connect_timeout_s,
        "client.update_period_s": client.update_period_s,
        "client.max_pinged": client.max_pinged,
    }
    for name, value in positive.items():
        if not 0 < value < float("inf"):
            raise BadInput(name, value, "a number above 0")
    settings.recovery_settings()
    check_sim(settings.sim)
    check_scale(settings.scale)
    check_rebalance(settings.rebalance)
    _check_cluster(settings, elsewhere=elsewhere)
    check_network(settings.network)
    _check_swarm(settings.swarm, here=settings.cluster.kind == "local" and not elsewhere)
    _check_soak(settings.soak)
    check_grid(settings.rates)
    check_speed(settings.speed)


def _check_cluster(settings: RunSettings, *, elsewhere: bool) -> None:
    check_cluster(settings.cluster, settings.swarm.device)
    if not elsewhere:
        swarm_address(settings.cluster.bind)
    if settings.experiment in STEERED and settings.rebalance.run_dir is None:
        check_files_reach(settings.cluster, settings.experiment)


def _check_scenarios(settings: RunSettings) -> None:
    """Which there are, their experiment says."""
    if settings.experiment in WITHOUT_SCENARIOS and settings.scenarios != "default":
        raise BadInput("scenarios", settings.scenarios, f"nothing: {settings.experiment} has none to choose")
    if not isinstance(settings.scenarios, str):
        _check_names("scenarios", settings.scenarios)


def _check_folders(settings: RunSettings) -> None:
    for name in ("results_dir", "models_dir"):
        if not getattr(settings, name).strip():
            raise BadInput(name, getattr(settings, name), "a folder")


def _check_model(model: ModelSettings) -> None:
    if not model.name.strip():
        raise BadInput("model.name", model.name, f"one of {', '.join(options('model'))}")
    if model.name == "path" and model.path is None:
        raise BadInput("model.path", None, "model=FOLDER, or model=path model.path=FOLDER")
    if model.quant not in QUANTS:
        raise BadInput("model.quant", model.quant, ", ".join(QUANTS))


def _check_soak(soak: SoakSettings) -> None:
    for name in ("clients", "failures_per_minute", "away_min_s", "pause_min_s", "prompt_tokens_min"):
        if not 0 < getattr(soak, name) < float("inf"):
            raise BadInput(f"soak.{name}", getattr(soak, name), "a number above 0")
    if not 0 <= soak.slowdowns_per_minute < float("inf"):
        raise BadInput("soak.slowdowns_per_minute", soak.slowdowns_per_minute, "a number, 0 for none")
    if not 0 <= soak.stop_share <= 1:
        raise BadInput("soak.stop_share", soak.stop_share, "0 (all die) to 1 (all hang)")
    if not 0 <= soak.aimed_share <= 1:
        raise BadInput("soak.aimed_share", soak.aimed_share, "0 (random servers) to 1 (servers in use first)")
    if soak.new_tokens_min < 2:
        raise BadInput("soak.new_tokens_min", soak.new_tokens_min, "at least 2")
    for name in ("away", "pause"):
        _check_range(f"soak.{name}_max_s", getattr(soak, f"{name}_min_s"), getattr(soak, f"{name}_max_s"))
    for name in ("prompt_tokens", "new_tokens"):
        _check_range(f"soak.{name}_max", getattr(soak, f"{name}_min"), getattr(soak, f"{name}_max"))


def _check_range(field: str, low: float, high: float) -> None:
    if not low <= high < float("inf"):
        raise BadInput(field, high, f"at least {low:g}, its lower bound")


def _check_swarm(swarm: SwarmSettings, *, here: bool) -> None:
    """What swarmlab.swarm.spec leaves to petals' own command line.

    :param here: whether servers run on this machine, so that its GPU matters
    """
    if swarm.torch_dtype not in DTYPES:
        raise BadInput("swarm.torch_dtype", swarm.torch_dtype, ", ".join(DTYPES))
    if swarm.log_level not in LOG_LEVELS:
        raise BadInput("swarm.log_level", swarm.log_level, ", ".join(LOG_LEVELS))
    if not 0 < swarm.throughput_tps <= MAX_THROUGHPUT_TPS:
        allowed = f"more than 0, at most {MAX_THROUGHPUT_TPS:g}"
        raise BadInput("swarm.throughput_tps", swarm.throughput_tps, allowed)
    if swarm.store_dir is not None and not swarm.store_dir.strip():
        raise BadInput("swarm.store_dir", swarm.store_dir, "a folder, or null for no store")
    if swarm.store_max_bytes is not None and swarm.store_max_bytes < 1:
        raise BadInput("swarm.store_max_bytes", swarm.store_max_bytes, "1 or more, or null for no limit")
    if swarm.throughput not in THROUGHPUTS:
        raise BadInput("swarm.throughput", swarm.throughput, ", ".join(THROUGHPUTS))
    if not re.fullmatch(r"(cpu|cuda|mps)(:\d+)?", swarm.device):
        raise BadInput("swarm.device", swarm.device, "cpu, cuda or cuda:N")
    if here:
        _check_device(swarm)


def _check_device(swarm: SwarmSettings) -> None:
    if swarm.device == "cpu" and swarm.torch_dtype == "float16":
        raise BadInput(
            "swarm.torch_dtype", swarm.torch_dtype, "float32 or bfloat16: petals has no other on a CPU"
        )
    if swarm.device.startswith("cuda"):
        import torch  # noqa: PLC0415  seconds, for those who need it

        if not torch.cuda.is_available():
            allowed = "cpu: torch finds no GPU here (python -m swarmlab.doctor says why)"
            raise BadInput("swarm.device", swarm.device, allowed)


def _check_names(field: str, names: Any, known: Sequence[str] | None = None) -> None:
    """
    :param known: None if whoever reads them says which there are
    """
    words = "names" if known is None else f"some of {', '.join(known)}"
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise BadInput(field, names, f"a list of {words}, each once")
    for name in names:
        if not isinstance(name, str) or (known is not None and name not in known):
            raise BadInput(field, name, words)
