"""The settings of a run: a schema with units, checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from swarmlab.errors import BadInput
from swarmlab.recovery.settings import RecoverySettings

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

# What each experiment can compare.
ARMS_OF = {"failover": ("petals", "issue_patch", "swarmlab")}


@dataclass
class ModelSettings:
    """Which checkpoint is served.

    :param name: tiny_llama (generated), smollm2 (``make models``), or a label for ``path``
    :param path: a Hugging Face Llama checkpoint folder; None for the named models
    :param n_blocks: blocks to generate, or that the checkpoint must have; None for the default
    :param seed: of generated weights
    """

    name: str = MISSING
    path: str | None = None
    n_blocks: int | None = None
    seed: int = 0


@dataclass
class SwarmSettings:
    """How servers are started; see swarmlab.swarm.spec.SwarmSpec for each."""

    update_period_s: float = 10.0
    expiration_s: float = 30.0
    start_deadline_s: float = 120.0
    num_handlers: int = 1
    attn_cache_tokens: int = 8192
    throughput_tps: float = 100.0
    torch_dtype: str = "float32"
    device: str = "cpu"
    log_level: str = "INFO"
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


# Hydra refuses to override fields of a frozen dataclass, and policy values are frozen: the same fields, thawed.
RecoveryOptions: Any = make_dataclass(
    "RecoveryOptions",
    [(entry.name, type(entry.default), field(default=entry.default)) for entry in fields(RecoverySettings)],
)


@dataclass
class RunSettings:
    """Everything a run needs.

    :param scenarios: a name, ``default``, ``all``, or a list of names
    :param deadline_s: for one arm in one scenario
    :param tolerance: largest difference of hidden states that still counts as identical
    :param floor_repeats: how often each recovery's floor is measured
    """

    experiment: str = MISSING
    seed: int = 0
    results_dir: str = "results/runs"
    models_dir: str = "models"
    arms: list[str] = field(default_factory=list)
    scenarios: Any = "default"
    deadline_s: float = 60.0
    tolerance: float = 3e-4
    floor_repeats: int = 5
    model: ModelSettings = field(default_factory=ModelSettings)
    swarm: SwarmSettings = field(default_factory=SwarmSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)  # pyright: ignore[reportInvalidTypeForm]

    def recovery_settings(self) -> RecoverySettings:
        """
        :raises BadInput: for a value that is not above 0
        """
        return RecoverySettings(**asdict(self.recovery))


def register() -> None:
    """Make the schema known to Hydra, as the first entry of the defaults list."""
    ConfigStore.instance().store(name="schema", node=RunSettings)


def load(overrides: Sequence[str]) -> tuple[RunSettings, dict[str, Any]]:
    """Compose and check the settings that a command line means.

    :returns: the settings, and the same fully resolved as plain values for ``config.yaml``
    :raises BadInput: if they cannot work, with one line that says what to change
    """
    register()
    for override in overrides:
        name, _, value = override.lstrip("+").partition("=")
        if name == "exp" and value not in known_experiments():
            raise BadInput("exp", value, ", ".join(known_experiments()))
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = compose("config", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise BadInput("command line", " ".join(overrides), _first_lines(error)) from error
    return from_config(config)


def from_config(config: DictConfig) -> tuple[RunSettings, dict[str, Any]]:
    """The settings of a composed config, checked.

    :raises BadInput: if they cannot work
    """
    if OmegaConf.is_missing(config, "experiment"):
        raise BadInput("+exp", None, f"an experiment: {', '.join(known_experiments())}")
    try:
        settings = OmegaConf.to_object(config)
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise BadInput("command line", "", _first_lines(error)) from error
    assert isinstance(settings, RunSettings)
    assert isinstance(resolved, dict)
    _check(settings)
    return settings, {str(name): value for name, value in resolved.items()}


def known_experiments() -> list[str]:
    return sorted(path.stem for path in (CONFIGS / "exp").glob("*.yaml"))


def _check(settings: RunSettings) -> None:
    if settings.experiment not in ARMS_OF:
        raise BadInput("experiment", settings.experiment, ", ".join(ARMS_OF))
    _check_arms(settings.arms, ARMS_OF[settings.experiment])
    if settings.floor_repeats < 0:
        raise BadInput("floor_repeats", settings.floor_repeats, "0 or more")
    client = settings.client
    if client.max_retries < 1:
        raise BadInput("client.max_retries", client.max_retries, "at least 1 (petals would retry for ever)")
    positive = {
        "deadline_s": settings.deadline_s,
        "tolerance": settings.tolerance,
        "client.request_timeout_s": client.request_timeout_s,
        "client.connect_timeout_s": client.connect_timeout_s,
        "client.update_period_s": client.update_period_s,
    }
    for name, value in positive.items():
        if not value > 0:
            raise BadInput(name, value, "a number above 0")
    settings.recovery_settings()


def _check_arms(arms: Sequence[str], known: Sequence[str]) -> None:
    if not arms or len(set(arms)) < len(arms):
        raise BadInput("arms", list(arms), f"some of {', '.join(known)}, each once")
    for arm in arms:
        if arm not in known:
            raise BadInput("arms", arm, ", ".join(known))


def _first_lines(error: Exception) -> str:
    """Hydra's message without its further explanations; of a wrapped error, what was wrapped."""
    lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
    return " ".join(lines[:4]) or type(error).__name__
