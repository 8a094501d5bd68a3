"""The schema of a run's settings, with units; what each means, and its default."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, make_dataclass
from typing import Any

from omegaconf import MISSING

from swarmlab.analysis.failure_rates_grid import GridSettings
from swarmlab.analysis.recovery_speed_grid import SpeedSettings
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.sim.settings import ScaleSettings, SimSettings
from swarmlab.swarm.cluster import ClusterSettings
from swarmlab.swarm.network import NetworkSettings
from swarmlab.swarm.rebalancing import RebalanceSettings


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
