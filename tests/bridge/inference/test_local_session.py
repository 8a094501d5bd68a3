"""The plain session that swarms are compared with must itself equal transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.inference.local_session import LocalSession  # noqa: E402 - petals' transformers needs compat first
from swarmlab.bridge.models import ensure_model, load_plain, plain_run, prompts  # noqa: E402


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return ensure_model("tiny_llama", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(checkpoint):
    return load_plain(checkpoint)


def run(model, session, prompt, n_tokens, **first):
    """Greedy generation through a session: tokens [batch, n], hidden states."""
    hidden, tokens, ids = [], [], prompt
    with torch.inference_mode():
        for step in range(n_tokens):
            hidden.append(session.step(model.model.embed_tokens(ids), **(first if step == 0 else {})))
            ids = model.lm_head(model.model.norm(hidden[-1][:, -1:])).argmax(dim=-1)
            tokens.append(ids)
    return torch.cat(tokens, dim=1).numpy(), torch.cat(hidden, dim=1).numpy()


def test_it_gives_what_transformers_gives(checkpoint, model):
    prompt = prompts(checkpoint, 3, 12, seed=1)
    tokens, hidden = run(model, LocalSession(model), torch.from_numpy(prompt), 20)
    wanted_tokens, wanted_hidden = plain_run(checkpoint, prompt, 20)
    assert np.array_equal(tokens, wanted_tokens)
    assert np.abs(hidden - wanted_hidden).max() < 1e-4


def test_reordered_rows_continue_the_row_they_name(checkpoint, model):
    prompt = torch.from_numpy(prompts(checkpoint, 2, 12, seed=2))
    embed = model.model.embed_tokens
    with torch.inference_mode():
        session, swapped = LocalSession(model), LocalSession(model)
        session.step(embed(prompt))
        swapped.step(embed(prompt[[1, 1]]))
        reordered = session.step(embed(prompt[:, :1]), hypo_ids=torch.tensor([1, 1]))
        assert torch.allclose(reordered, swapped.step(embed(prompt[:, :1])), atol=1e-4)


def test_deep_prompts_are_added_before_every_block(checkpoint, model):
    prompt = torch.from_numpy(prompts(checkpoint, 1, 12, seed=3))
    shape = (checkpoint.n_blocks, 1, 4, checkpoint.hidden_size)
    none, some = torch.zeros(shape), torch.zeros(shape)
    some[-1] = 1.0
    plain = run(model, LocalSession(model), prompt, 5)[1]
    assert np.abs(run(model, LocalSession(model), prompt, 5, prompts=none)[1] - plain).max() < 1e-5
    first = run(model, LocalSession(model), prompt, 1, prompts=some)[1]
    # only the last block is prompted: its own first four outputs move, those after them through attention
    assert np.abs(first[:, :4] - plain[:, :4]).max() > 0.1
