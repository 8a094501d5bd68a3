"""One small real swarm for all tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from swarmlab.bridge import compat
from swarmlab.swarm import ray_process
from swarmlab.swarm.deploy import deploy
from swarmlab.swarm.spec import ServerSpec, SwarmSpec
from swarmlab.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swarmlab.bridge.models.checkpoint import Checkpoint
    from swarmlab.swarm.deploy import Swarm

# a chain of three, and two servers that hold a half each
SERVERS = (
    ServerSpec("first", Span(0, 5)),
    ServerSpec("middle", Span(5, 11)),
    ServerSpec("last", Span(11, 16)),
    ServerSpec("left", Span(0, 8)),
    ServerSpec("right", Span(8, 16)),
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Checkpoint:
    """The generated 16-block Llama."""
    compat.apply()
    from swarmlab.bridge.models.ensure import ensure_model

    return ensure_model("tiny_llama", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def tiny_spec(tiny_model: Checkpoint) -> SwarmSpec:
    """Five servers on the tiny model."""
    return SwarmSpec(tiny_model.path, tiny_model.dht_prefix, tiny_model.n_blocks, SERVERS, expiration_s=30.0)


@pytest.fixture(scope="session")
def _shared_swarm(tiny_spec: SwarmSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    with deploy(tiny_spec, tmp_path_factory.mktemp("swarm")) as swarm:
        yield swarm


@pytest.fixture
def tiny_swarm(_shared_swarm: Swarm) -> Iterator[Swarm]:
    """Five running servers; whatever a test did to them is undone after it."""
    yield _shared_swarm
    for name, server in _shared_swarm.servers.items():
        if server.state == "stopped":
            _shared_swarm.cont(name)
        if not server.alive:
            _shared_swarm.restart(name)
    _shared_swarm.wait_ready()


@pytest.fixture
def one_server(tiny_spec: SwarmSpec) -> SwarmSpec:
    """The smallest whole swarm, for tests that need one of their own; not started."""
    return replace(tiny_spec, servers=(ServerSpec("only", Span(0, 16)),))


@pytest.fixture
def failing_ray(monkeypatch, tmp_path):
    """A Ray that comes up at the given attempt; each attempt leaves a line in ``attempts``."""

    def play(succeeds_at):
        script = tmp_path / "ray.sh"
        script.write_text(
            f"echo x >> {tmp_path}/attempts\nif [ $(wc -l < {tmp_path}/attempts) -ge {succeeds_at} ]; then\n"
            'echo "Ray runtime started."; exec sleep 600; fi\necho "timed out during startup"; exit 1\n'
        )
        monkeypatch.setattr(ray_process, "SUPERVISOR", ["sh", str(script)])

    return play
