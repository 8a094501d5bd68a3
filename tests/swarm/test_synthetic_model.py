"""A 65B at a tenth, drawn into the store and served in nf4 by petals' server and by ours, beside transformers alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.block_store import BlockStore  # noqa: E402 - petals needs compat first
from swarmlab.bridge.clients.failover import load_model  # noqa: E402
from swarmlab.bridge.models import plain_run, prompts  # noqa: E402
from swarmlab.bridge.models.synthetic import synthetic  # noqa: E402
from swarmlab.swarm.deploy import deploy  # noqa: E402
from swarmlab.swarm.spec import ServerSpec, SwarmSpec  # noqa: E402
from swarmlab.types import Span  # noqa: E402

pytestmark = pytest.mark.swarm

N_BLOCKS, NEW_TOKENS = 4, 6
SERVERS = (
    ServerSpec("original", Span(0, 3)),
    ServerSpec("ours", Span(2, 4), kind="server:server"),
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return synthetic(tmp_path_factory.mktemp("models"), "llama_65b_tenth", N_BLOCKS)


@pytest.fixture(scope="module")
def swarm(checkpoint, tmp_path_factory):
    spec = SwarmSpec(
        checkpoint.path,
        checkpoint.dht_prefix,
        N_BLOCKS,
        SERVERS,
        quant="nf4",
        store_dir=str(tmp_path_factory.mktemp("store")),
    )
    with deploy(spec, tmp_path_factory.mktemp("swarm")) as running:
        yield running


def test_the_swarm_says_what_transformers_says(checkpoint, swarm):
    prompt = prompts(checkpoint, 1, 12, seed=1)
    tokens, hidden = plain_run(checkpoint, prompt, NEW_TOKENS, "nf4")
    assert len(set(tokens[0])) > NEW_TOKENS // 2  # no one token again and again
    args = {
        "model_path": str(checkpoint.path),
        "initial_peers": swarm.initial_peers,
        "dht_prefix": checkpoint.dht_prefix,
        "client": {"show_route": False, "max_retries": 2},
    }
    model = load_model(args)
    try:
        with torch.inference_mode():
            generated = model.generate(torch.from_numpy(prompt), max_new_tokens=NEW_TOKENS, do_sample=False)
            states = model.model.layers(model.model.embed_tokens(generated[:, :-1]))
    finally:
        manager = model.transformer.h.sequence_manager
        manager.shutdown()
        manager.dht.shutdown()
    assert generated[:, prompt.shape[1] :].tolist() == tokens.tolist()
    assert np.abs(states.numpy() - hidden).max() < 1e-3 * np.abs(hidden).max()


def test_each_block_was_drawn_into_the_store_once(swarm):
    kept = [path.name.split("-")[:3] for path, _ in BlockStore(swarm.spec.store_dir).files()]
    assert sorted(kept) == [["block", f"{block:03d}", "nf4"] for block in range(N_BLOCKS)]
    assert "from drawn" in swarm.servers["original"].log_path.read_text()
