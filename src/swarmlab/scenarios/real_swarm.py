"""What experiments share in which clients generate on a real swarm whose servers come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from swarmlab.bridge.models import Checkpoint
from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.swarm.spec import ServerSpec, SwarmSpec
from swarmlab.types import Span

ToldState = Callable[[str, str, str], None]  # name of a process, its new state, detail


@dataclass(frozen=True, kw_only=True)
class OnRealSwarm:
    """One run of such an experiment.

    :param swarm: how servers are started; who they are follows from the experiment
    :param client: fields of petals' ClientConfig
    :param recovery: RecoverySettings by name
    """

    checkpoint: Checkpoint
    arms: Sequence[str]
    swarm: SwarmSpec
    client: dict[str, Any]
    recovery: dict[str, Any]
    seed: int

    world: Literal["real"] = "real"

    @property
    def model(self) -> dict[str, Any]:
        return self.checkpoint.identity

    def client_args(self, arm: str) -> dict[str, Any]:
        """What each client process is told, whatever it does."""
        return {
            "arm": arm,
            "model_path": str(self.checkpoint.path),
            "quant": self.swarm.quant,
            "dht_prefix": self.checkpoint.dht_prefix,
            "client": self.client,
            "recovery": self.recovery,
        }

    def require_cache(self, tokens: int, why: str) -> None:
        """
        :raises BadInput: if a server's attention cache is not for so many tokens
        """
        if self.swarm.attn_cache_tokens < tokens:
            allowed = f"at least {tokens} {why}"
            raise BadInput("swarm.attn_cache_tokens", self.swarm.attn_cache_tokens, allowed)

    def with_servers(self, spans: Mapping[str, Span], throughput_tps: float) -> SwarmSpec:
        """The swarm with these servers, alike but for name and blocks."""
        servers = (ServerSpec(name, span, throughput_tps=throughput_tps) for name, span in spans.items())
        return replace(self.swarm, servers=tuple(servers))


def recording(run_dir: RunDir, show: ToldState) -> ToldState:
    """Records every change of a process's state, and shows it."""

    def note(name: str, state: str, detail: str) -> None:
        run_dir.history.write("servers", "", server=name, state=state, detail=detail)
        show(name, state, detail)

    return note
