"""Models whose blocks are drawn: the same everywhere, whole or in parts, and what transformers makes of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.blocks.loader import DRAWN, STORE, PetalsLoader  # noqa: E402
from swarmlab.bridge.blocks.source import loader_of  # noqa: E402
from swarmlab.bridge.blocks.store_loader import StoreLoader  # noqa: E402
from swarmlab.bridge.blocks.synthetic_loader import SyntheticLoader  # noqa: E402
from swarmlab.bridge.models import ensure_model, load_plain, open_checkpoint, plain_run, prompts  # noqa: E402
from swarmlab.bridge.models.checkpoint import WEIGHTS  # noqa: E402
from swarmlab.bridge.models.llama_shapes import LLAMA_65B, SYNTHETIC, llama_config  # noqa: E402
from swarmlab.bridge.models.synthetic import RECIPE, block_tensors, draw, synthetic  # noqa: E402
from swarmlab.errors import BadInput  # noqa: E402
from tests.bridge.block_checks import assert_same_block, output, recipe_for  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*from a non-meta parameter:UserWarning")
FULL_65B = llama_config(LLAMA_65B, "float16") | {SYNTHETIC: {"seed": 0, "recipe": RECIPE}}


@pytest.fixture(scope="module")
def tenth(tmp_path_factory):
    return synthetic(tmp_path_factory.mktemp("models"), "llama_65b_tenth", n_blocks=3)


def test_the_folder_holds_what_a_client_needs_and_no_block(tenth):
    from safetensors import safe_open

    with safe_open(tenth.path / WEIGHTS, framework="numpy") as stored:
        assert set(stored.keys()) == {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    assert (tenth.n_blocks, tenth.hidden_size, tenth.vocab_size, tenth.dtype) == (3, 768, 3200, "float16")
    assert open_checkpoint(tenth.path) == tenth


def test_weights_are_the_same_on_every_machine(tenth):
    digest = hashlib.sha256()
    for name, values in sorted(block_tensors(tenth.config, 1).items()):
        digest.update(name.encode() + values.astype("<f2").tobytes())
    assert digest.hexdigest()[:16] == "8e0fb79e4aa1fc32"


def test_seed_block_and_name_count(tenth, tmp_path):
    other = synthetic(tmp_path, "llama_65b_tenth", n_blocks=3, seed=1)
    name = "self_attn.q_proj.weight"
    drawn = [
        block_tensors(config, block)[name] for config in (tenth.config, other.config) for block in (0, 1)
    ]
    drawn.append(block_tensors(tenth.config, 0)["self_attn.k_proj.weight"])
    for one in range(len(drawn)):
        for two in range(one):
            assert abs(np.corrcoef(drawn[one].ravel(), drawn[two].ravel())[0, 1]) < 0.01
    assert other.dht_prefix != tenth.dht_prefix


def test_a_tensor_of_the_full_65b_is_spread_as_it_should_be():
    values = draw(FULL_65B, "model.layers.79.self_attn.k_proj.weight")
    assert values.shape == (8192, 8192)
    assert values.dtype == np.float16
    sample = values[::64].astype(np.float32) * np.sqrt(8192) / 2.25  # see tiny_llama: queries and keys
    assert sample.std() == pytest.approx(1, abs=0.01)
    assert abs(sample.mean()) < 0.01
    assert np.abs(sample).max() <= np.sqrt(3) * 1.001


@pytest.mark.parametrize("quant", list(QuantType))
def test_a_block_is_that_of_the_same_weights_in_a_file(tenth, tmp_path, quant):
    """Written out as an ordinary checkpoint and loaded by petals."""
    from safetensors.numpy import load_file, save_file

    config = {name: value for name, value in tenth.config.items() if name != SYNTHETIC}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(tenth.path / WEIGHTS)
    for block in range(3):
        tensors = block_tensors(tenth.config, block)
        weights |= {f"model.layers.{block}.{name}": values for name, values in tensors.items()}
    save_file(weights, tmp_path / WEIGHTS, metadata={"format": "pt"})
    drawn = SyntheticLoader(recipe_for(tenth.path, quant)).load(1)
    assert drawn.source == DRAWN
    assert_same_block(drawn.module, PetalsLoader(recipe_for(tmp_path, quant)).load(1).module)
    assert open_checkpoint(tmp_path).n_blocks == 3


def test_drawn_blocks_go_through_the_store(tenth, tmp_path):
    recipe = recipe_for(tenth.path)
    loader = loader_of(recipe, tmp_path)
    assert isinstance(loader, StoreLoader)
    first, second = loader.load(2), loader.load(2)
    assert (first.source, second.source) == (DRAWN, STORE)
    assert_same_block(first.module, second.module)
    with pytest.raises(IndexError):
        loader.load(3)


def test_seeds_do_not_meet_in_one_store(tenth, tmp_path):
    other = synthetic(tmp_path, "llama_65b_tenth", n_blocks=3, seed=1)
    recipes = [recipe_for(one.path) for one in (tenth, other)]
    outputs = [output(loader_of(recipe, tmp_path / "store").load(0).module) for recipe in recipes]
    assert not torch.equal(*outputs)


@pytest.mark.parametrize("quant", ["none", "nf4"])
def test_transformers_makes_of_it_what_the_blocks_make(tenth, quant):
    prompt = prompts(tenth, 1, 8, 0)
    tokens, hidden = plain_run(tenth, prompt, 4, quant)
    assert len(set(tokens[0])) == 4
    recipe = recipe_for(tenth.path, QuantType[quant.upper()])
    model = load_plain(tenth)
    with torch.inference_mode():
        fed = torch.cat([torch.from_numpy(prompt), torch.from_numpy(tokens[:, :-1])], dim=1)
        states = model.model.embed_tokens(fed)
        for block in range(3):
            states = SyntheticLoader(recipe).load(block).module(states)[0]
    assert np.abs(states.numpy() - hidden).max() < 1e-4 * np.abs(hidden).max()


def test_quantization_changes_the_reference(tenth):
    prompt = prompts(tenth, 1, 8, 0)
    hidden = [plain_run(tenth, prompt, 1, quant)[1] for quant in ("none", "int8", "nf4")]
    errors = [np.abs(one - hidden[0]).mean() / np.abs(hidden[0]).mean() for one in hidden]
    assert 0 < errors[1] < errors[2] < 0.5


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"n_blocks": 0}, "model.n_blocks"),
        ({"n_blocks": 161}, "model.n_blocks"),
        ({"seed": -1}, "model.seed"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, options, field):
    with pytest.raises(BadInput) as refused:
        synthetic(tmp_path, "llama_65b_tenth", **options)
    assert refused.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_weights_of_another_recipe_are_refused(tenth):
    config = {**tenth.config, SYNTHETIC: {"seed": 0, "recipe": RECIPE + 1}}
    with pytest.raises(BadInput, match="make it again"):
        block_tensors(config, 0)


def test_several_devices_are_served_without_a_store(tenth, tmp_path):
    recipe = replace(recipe_for(tenth.path), devices=(torch.device("cpu"), torch.device("cpu")))
    assert isinstance(loader_of(recipe, tmp_path), SyntheticLoader)


def test_a_store_that_cannot_be_costs_only_the_store(tenth, tmp_path):
    (tmp_path / "file").write_text("")
    assert isinstance(loader_of(recipe_for(tenth.path), tmp_path / "file" / "store"), SyntheticLoader)


def test_it_is_a_model_by_name(tmp_path):
    checkpoint = ensure_model("llama_65b_tenth", tmp_path, n_blocks=2)
    assert checkpoint.model_id == "llama_65b_tenth-2-s0-r1"
    assert ensure_model("llama_65b_tenth", tmp_path, n_blocks=2) == checkpoint
