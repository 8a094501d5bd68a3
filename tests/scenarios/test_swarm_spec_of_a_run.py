"""What a run's model and store settings become in its swarm's servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from swarmlab.scenarios.swarm_of_run import checkpoint_of, swarm_spec
from swarmlab.settings import load
from swarmlab.swarm.server import server_argv
from swarmlab.swarm.spec import ServerSpec
from swarmlab.types import Span

EXP = "+exp=failover"


def spec_of(tmp_path, *overrides: str):
    settings, _ = load([EXP, f"models_dir={tmp_path}", *overrides])
    return swarm_spec(settings, checkpoint_of(settings))


def option(spec, name: str) -> str:
    handle: Any = SimpleNamespace(
        spec=ServerSpec("a", Span(0, 1)),
        port=1,
        identity_path="key",
        host=SimpleNamespace(address="127.0.0.1"),
    )
    argv = server_argv(spec, handle, [])
    return argv[argv.index(name) + 1]


def test_an_ordinary_model_is_served_as_it_is_and_without_a_store(tmp_path):
    spec = spec_of(tmp_path)
    assert (spec.quant, spec.store_dir, spec.store_max_bytes) == ("none", None, None)
    assert option(spec, "--quant_type") == "none"
    assert spec.block_bytes == round(41088 * 4 * 1.01)


def test_a_synthetic_model_is_drawn_into_a_store_beside_the_models(tmp_path):
    spec = spec_of(tmp_path, "model=llama_65b_tenth", "model.n_blocks=2", "model.quant=nf4")
    assert spec.store_dir == str(tmp_path / "block_store")
    assert option(spec, "--quant_type") == "nf4"
    assert spec.block_bytes == round(7116288 * 4.25 / 8 * 1.01)


def test_a_store_of_ones_own_is_an_absolute_path_for_processes_that_live_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = spec_of(tmp_path, "swarm.store_dir=kept", "swarm.store_max_bytes=1000")
    assert (spec.store_dir, spec.store_max_bytes) == (str(tmp_path / "kept"), 1000)
