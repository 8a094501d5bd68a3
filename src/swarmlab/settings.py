"""The settings of a run: a schema with units, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from swarmlab.analysis.failure_rates_grid import GridSettings
from swarmlab.analysis.failure_rates_grid import check as check_grid
from swarmlab.analysis.recovery_speed_grid import SpeedSettings
from swarmlab.analysis.recovery_speed_grid import check as check_speed
from swarmlab.errors import BadInput
from swarmlab.health.capacity import QUANTS
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.sim.settings import ScaleSettings, SimSettings, check_scale
from swarmlab.sim.settings import check as check_sim
from swarmlab.swarm.cluster import ClusterSettings, check_files_reach
from swarmlab.swarm.cluster import check as check_cluster
from swarmlab.swarm.network import NetworkSettings
from swarmlab.swarm.network import check as check_network
from swarmlab.swarm.rebalancing import RebalanceSettings, check_rebalance
from swarmlab.swarm.spec import THROUGHPUTS
from swarmlab.types import MAX_THROUGHPUT_TPS

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

# What each experiment can compare.
ARMS_OF = {
    "failover": ("petals", "issue_patch", "swarmlab", "swarmlab_standby"),
    "failover_soak": ("petals", "issue_patch", "swarmlab"),
    "failure_rates": ("restart", "cacheless", "swarmlab", "petals"),
    "recovery_speed": ("swarmlab", "swarmlab_standby"),
    "record_dht": ("swarm",),
}

PLACEMENT_ARMS = (
    "none", "join_only", "appendix_d_1", "appendix_d_10", "appendix_d_20", "petals", "recheck", "swarmlab",
)  # fmt: skip
REAL_PLACEMENT_ARMS = ("petals", "recheck", "pinned", "appendix_d", "swarmlab")
ARMS_OF |= dict.fromkeys(("rebalance", "rebalance_under_load", "sim_vs_real"), REAL_PLACEMENT_ARMS)
ARMS_OF |= {"report_389": PLACEMENT_ARMS, "scale": PLACEMENT_ARMS}
ARMS_OF |= dict.fromkeys(("appendix_e", "churn"), (*PLACEMENT_ARMS, "oracle"))

# Experiments that place files beside their servers.
STEERED = ("failure_rates", "rebalance", "rebalance_under_load", "sim_vs_real")

WITHOUT_SCENARIOS = ("failover_soak", "failure_rates", "recovery_speed", "record_dht", "scale")

DTYPES = ("float32", "float16", "bfloat16")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

NAME_VALUE = (
    "name=value, quoted for the shell where it has brackets or blanks, as in 'arms=[petals,swarmlab]'"
)

# What a field of each type takes, for whoever gave it something else.
WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a name or text",
    bool: "true or false",
    int | None: "a whole number or null",
    float | None: "a number or null",
    str | None: "text or null",
    list[str]: "a list, quoted for the shell, as in 'arms=[petals,swarmlab]'",
    list[int]: "a list of whole numbers, quoted for the shell, as in 'rates.lengths=[128,1024]'",
    list[float]: "a list of numbers, quoted for the shell, as in 'rates.rates=[0,0.01]'",
}


@dataclass
class ModelSettings:
    """Which checkpoint is served.

    :param name: tiny_llama, llama_65b_tenth, llama_65b_synthetic (generated), smollm2 (``make models``), llama_65b,
        llama2_70b (weights of your own), or a label for ``path``
    :param path: a Hugging Face Llama checkpoint folder; None for the named models
    :param n_blocks: blocks to generate, or that the checkpoint must have; None for the default
    :param seed: of generated weights
    :param quant: none, int8 or nf4: how servers hold the linear layers of the blocks
    """

    name: str = MISSING
    path: str | None = None
    n_blocks: int | None = None
    seed: int = 0
    quant: str = "none"


@dataclass
class SwarmSettings:
    """How servers are started; see swarmlab.swarm.spec.SwarmSpec for each."""

    update_period_s: float = 10.0
    expiration_s: float = 30.0
    start_deadline_s: float = 120.0
    num_handlers: int = 1
    attn_cache_tokens: int = 8192
    throughput: str = "given"
    throughput_tps: float = 100.0
    torch_dtype: str = "float32"
    device: str = "cpu"
    log_level: str = "INFO"
    store_dir: str | None = None
    store_max_bytes: int | None = None
    argv: list[str] = field(default_factory=list)


@dataclass
class ClientSettings:
    """Fields of petals' ClientConfig that every arm's client gets."""

    max_retries: int = 4
    request_timeout_s: float = 8.0
    connect_timeout_s: float = 5.0
    update_period_s: float = 60.0
    max_pinged: int = 100

    def as_petals(self) -> dict[str, Any]:
        """By the names that petals gives them."""
        return {
            "max_retries": self.max_retries,
            "request_timeout": self.request_timeout_s,
            "connect_timeout": self.connect_timeout_s,
            "update_period": self.update_period_s,
            "max_pinged": self.max_pinged,
            "show_route": False,
        }


@dataclass
class SoakSettings:
    """What clients ask for and what goes wrong in a soak; drawn at random between the bounds.

    :param clients: per arm, each a process of its own
    :param failures_per_minute: servers killed or stopped
    :param slowdowns_per_minute: servers paused for a moment
    :param stop_share: how many of the failures are hangs instead of deaths, 0 to 1
    :param away_min_s: shortest time until a failed server is restarted or continued
    :param aimed_share: how many of all faults are aimed at servers in use, 0 to 1
    :param allow_outage: whether the last live holder of a block may fail, too
    """

    clients: int = 2
    failures_per_minute: float = 10.0
    slowdowns_per_minute: float = 20.0
    stop_share: float = 0.4
    away_min_s: float = 2.0
    away_max_s: float = 8.0
    pause_min_s: float = 0.05
    pause_max_s: float = 0.5
    aimed_share: float = 0.7
    allow_outage: bool = False
    prompt_tokens_min: int = 5
    prompt_tokens_max: int = 120
    new_tokens_min: int = 8
    new_tokens_max: int = 80


@dataclass
class RecorderSettings:
    """How a running swarm is recorded.

    :param n_blocks: of the model; None means as its servers announce
    :param every_s: seconds between two looks
    :param hash_peers: write names that cannot be traced back instead of peer ids
    """

    n_blocks: int | None = None
    every_s: float = 10.0
    hash_peers: bool = False


# Hydra refuses to override fields of a frozen dataclass, and policy values are frozen: the same fields, thawed.
RecoveryOptions: Any = make_dataclass(
    "RecoveryOptions",
    [(entry.name, type(entry.default), field(default=entry.default)) for entry in fields(RecoverySettings)],
)


@dataclass
class RunSettings:
    """Everything a run needs.

    :param scenarios: a name, ``default``, ``all``, or a list of names
    :param scenarios_dir: a folder with ``topologies.yaml`` and ``scenarios/``; None for the experiment's own
    :param deadline_s: for one arm in one scenario
    :param tolerance: largest difference of hidden states that still counts as identical
    :param floor_repeats: how often each recovery's floor is measured
    :param minutes: how long an experiment that has no end of its own goes on
    :param initial_peers: addresses of a swarm that runs already
    :param dht_prefix: of the keys of its model; None means the only one that is announced
    """

    experiment: str = MISSING
    seed: int = 0
    results_dir: str = "results/runs"
    models_dir: str = "models"
    arms: list[str] = field(default_factory=list)
    scenarios: Any = "default"
    scenarios_dir: str | None = None
    deadline_s: float = 60.0
    tolerance: float = 3e-4
    floor_repeats: int = 5
    minutes: float = 3.0
    model: ModelSettings = field(default_factory=ModelSettings)
    swarm: SwarmSettings = field(default_factory=SwarmSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    initial_peers: list[str] = field(default_factory=list)
    dht_prefix: str | None = None
    recorder: RecorderSettings = field(default_factory=RecorderSettings)
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)  # pyright: ignore[reportInvalidTypeForm]
    soak: SoakSettings = field(default_factory=SoakSettings)
    rates: GridSettings = field(default_factory=GridSettings)
    speed: SpeedSettings = field(default_factory=SpeedSettings)
    sim: SimSettings = field(default_factory=SimSettings)
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    rebalance: RebalanceSettings = field(default_factory=RebalanceSettings)

    def recovery_settings(self) -> RecoverySettings:
        """
        :raises BadInput: for a value that is not above 0
        """
        return RecoverySettings(**asdict(self.recovery))


def register() -> None:
    """Make the schema known to Hydra, as the first entry of the defaults list."""
    ConfigStore.instance().store(name="schema", node=RunSettings)


def load(overrides: Sequence[str], *, elsewhere: bool = False) -> tuple[RunSettings, dict[str, Any]]:
    """Compose and check the settings that a command line means.

    :param elsewhere: they are for another machine, so that what this one lacks does not matter
    :returns: the settings, and the same fully resolved as plain values for ``config.yaml``
    :raises BadInput: if they cannot work, with one line that says what to change
    """
    register()
    overrides = spelled_out(overrides)
    _check_choices(overrides)
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = compose("config", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise _bad_input(error, overrides) from error
    return from_config(config, elsewhere=elsewhere)


def spelled_out(overrides: Sequence[str]) -> list[str]:
    """``model=FOLDER`` in the words of the config: it has a slash, and no name of a model has one."""
    return [part for override in overrides for part in _spelled_out(override)]


def _spelled_out(override: str) -> list[str]:
    name, _, value = override.partition("=")
    return ["model=path", f"model.path={quoted(value)}"] if name == "model" and "/" in value else [override]


def quoted(value: str) -> str:
    """As Hydra reads any text back."""
    escaped = value.replace("\\", r"\\").replace("'", r"\'")
    return f"'{escaped}'"


def combinations(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The command lines of a multirun's jobs: every combination of the values that are to be swept.

    :raises BadInput: if an override cannot be read
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        choices = [
            [f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()]
            if one.is_sweep_override()
            else [str(one.input_line)]
            for one in parsed
        ]
    except HydraException as error:
        raise _bad_input(error, overrides) from error
    return (list(choice) for choice in product(*choices))


def from_config(config: DictConfig, *, elsewhere: bool = False) -> tuple[RunSettings, dict[str, Any]]:
    """The settings of a composed config, checked.

    :param elsewhere: as in :func:`load`
    :raises BadInput: if they cannot work
    """
    if OmegaConf.is_missing(config, "experiment"):
        raise BadInput("+exp", None, f"an experiment: {', '.join(known_experiments())}")
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
        assert isinstance(resolved, dict)
        _refuse_unknown(resolved, RunSettings)
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise _bad_input(error, ()) from error
    assert isinstance(settings, RunSettings)
    _check(settings, elsewhere=elsewhere)
    return settings, {str(name): value for name, value in resolved.items()}


def known_experiments() -> list[str]:
    return _options("exp")


def _options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def _check_choices(overrides: Sequence[str]) -> None:
    """Refuse files that configs/ does not have, and settings without a name, before Hydra looks for them."""
    groups = {path.name for path in CONFIGS.iterdir() if path.is_dir()}
    for override in overrides:
        name, _, value = override.partition("=")
        group = name.lstrip("+")
        if not group.lstrip("~").strip():
            raise BadInput("command line", override, NAME_VALUE)
        if group in groups and value not in _options(group):
            raise BadInput(name, value or None, ", ".join(_options(group)))
        if name == "exp":
            raise BadInput("exp", value, f"+exp={value}, with a plus")
    named = [one.partition("=")[2] for one in overrides if one.startswith("+exp=")]
    if len(named) > 1:
        raise BadInput("+exp", " ".join(named), "one experiment at a time")


def _check_folders(settings: RunSettings) -> None:
    for name in ("results_dir", "models_dir"):
        if not getattr(settings, name).strip():
            raise BadInput(name, getattr(settings, name), "a folder")


def _check(settings: RunSettings, *, elsewhere: bool) -> None:
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
    _check_cluster(settings)
    check_network(settings.network)
    _check_swarm(settings.swarm, here=settings.cluster.kind == "local" and not elsewhere)
    _check_soak(settings.soak)
    check_grid(settings.rates)
    check_speed(settings.speed)


def _check_cluster(settings: RunSettings) -> None:
    check_cluster(settings.cluster, settings.swarm.device)
    if settings.experiment in STEERED and settings.rebalance.run_dir is None:
        check_files_reach(settings.cluster, settings.experiment)


def _check_scenarios(settings: RunSettings) -> None:
    """Which there are, their experiment says."""
    if settings.experiment in WITHOUT_SCENARIOS and settings.scenarios != "default":
        raise BadInput("scenarios", settings.scenarios, f"nothing: {settings.experiment} has none to choose")
    if not isinstance(settings.scenarios, str):
        _check_names("scenarios", settings.scenarios)


def _check_model(model: ModelSettings) -> None:
    if not model.name.strip():
        raise BadInput("model.name", model.name, f"one of {', '.join(_options('model'))}")
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


def _refuse_unknown(values: Mapping[Any, Any], kind: Any, where: str = "") -> None:
    """Hydra lets ``+name=value`` add anything; what nobody reads is a mistake."""
    known = get_type_hints(kind)
    for name, value in values.items():
        if name not in known:
            raise BadInput(f"{where}{name}", value, _takes(f"{where}{name}"))
        if is_dataclass(known[name]) and isinstance(value, Mapping):
            _refuse_unknown(value, known[name], f"{where}{name}.")


def _takes(key: str) -> str:
    """What the setting of this name takes, in words."""
    kind, walked = RunSettings, ""
    for name in key.split("."):
        known = get_type_hints(kind) if is_dataclass(kind) else {}
        if name not in known:
            return f"a setting that exists: {', '.join(walked + one for one in known)}"
        kind, walked = known[name], f"{walked}{name}."
    if is_dataclass(kind):
        return f"one setting at a time: {', '.join(f'{walked}{one}=...' for one in get_type_hints(kind))}"
    return WORDS.get(kind, "another value")


def _bad_input(error: Exception, overrides: Sequence[str]) -> BadInput:
    """Hydra's and OmegaConf's errors in our words."""
    chain = [error, error.__cause__]
    key = next((one.full_key for one in chain if isinstance(one, OmegaConfBaseException)), None)
    if key:
        given = [one.partition("=") for one in overrides]
        value = next((value for name, _, value in reversed(given) if name.lstrip("+~") == key), None)
        return BadInput(key, value, _takes(key))
    parsing = next((one for one in chain if isinstance(one, OverrideParseException)), None)
    if parsing is not None:
        return BadInput("command line", parsing.override, NAME_VALUE)
    several = re.search(r"Ambiguous value for argument '([^=']+)=(.*)'", str(error))
    if several:
        return BadInput(several[1].lstrip("+~"), several[2], "one value; several make a run each, with -m")
    return BadInput("command line", " ".join(overrides), _first_lines(error))


def _first_lines(error: Exception) -> str:
    """Hydra's message without its further explanations; of a wrapped error, what was wrapped."""
    lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
    return " ".join(lines[:4]) or type(error).__name__
