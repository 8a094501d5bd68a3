"""Opening checkpoints, good and bad, and the plain run that experiments compare with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from swarmlab.bridge.models import (
    Checkpoint,
    decode,
    ensure_model,
    load_plain,
    open_checkpoint,
    plain_run,
    prompts,
)
from swarmlab.bridge.models.checkpoint import INDEX, WEIGHTS
from swarmlab.bridge.models.manifest import MANIFEST
from swarmlab.bridge.models.tiny_llama import tiny_llama
from swarmlab.errors import BadInput


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Checkpoint:
    return tiny_llama(tmp_path_factory.mktemp("models"))


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    """A copy to damage, without the manifest that would find any damage first."""
    copy = tmp_path / "copy"
    shutil.copytree(tiny.path, copy)
    (copy / MANIFEST).unlink()
    return copy


def save_hf(folder: Path, **config) -> LlamaForCausalLM:
    """A checkpoint as transformers itself writes it: grouped heads, tied head, several shards."""
    sizes: dict[str, Any] = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
    }
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=64, **config))
    model.save_pretrained(folder, safe_serialization=True, max_shard_size="30KB")
    return model


def edit_json(file: Path, **entries) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def edit_weights(folder: Path, name: str, value: np.ndarray | None) -> None:
    """Replace a tensor (None: remove it) in a checkpoint of one file."""
    stored = load_file(folder / WEIGHTS)
    del stored[name]
    new = {} if value is None else {name: value}
    save_file(stored | new, folder / WEIGHTS, metadata={"format": "pt"})


def test_a_checkpoint_says_what_it_is(tiny):
    assert open_checkpoint(str(tiny.path)) == tiny
    assert (tiny.n_blocks, tiny.hidden_size, tiny.vocab_size, tiny.dtype) == (16, 64, 256, "float32")
    assert not tiny.has_tokenizer
    assert tiny.path.is_absolute()


def test_the_dht_prefix_has_no_delimiter_of_petals_and_follows_the_content(folder):
    named = folder.rename(folder.parent / "llama 3.1.b")
    before = open_checkpoint(named)
    assert not set(". ") & set(before.dht_prefix)
    edit_weights(named, "model.norm.weight", np.full(64, 2, dtype=np.float32))
    after = open_checkpoint(named)
    assert before.model_id == after.model_id == "llama 3.1.b"
    assert before.dht_prefix != after.dht_prefix


def test_a_sharded_checkpoint_written_by_transformers_opens_and_runs(tmp_path):
    model = save_hf(tmp_path).eval()
    checkpoint = open_checkpoint(tmp_path)
    assert (tmp_path / INDEX).exists()
    assert (checkpoint.n_blocks, checkpoint.hidden_size, checkpoint.max_tokens) == (3, 32, 64)
    ids = prompts(checkpoint, 2, 5, seed=3)
    tokens, _ = plain_run(checkpoint, ids, 1)
    assert tokens[:, 0].tolist() == model(torch.from_numpy(ids)).logits[:, -1].argmax(-1).tolist()


def test_opening_needs_no_torch_and_no_transformers(tiny):
    code = (
        "import sys; from swarmlab.bridge.models import open_checkpoint, prompts\n"
        f"prompts(open_checkpoint({str(tiny.path)!r}), 2, 8, 0)\n"
        "sys.exit(bool({'torch', 'transformers', 'petals', 'gguf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"model_type": "bloom", "architectures": ["BloomForCausalLM"]}, "Llama"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForCausalLM"),
        ({"num_hidden_layers": "16"}, "num_hidden_layers"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_attention_heads": 3}, "divisible"),
        ({"vocab_size": 300}, "model.embed_tokens.weight of shape"),
        ({"num_hidden_layers": 17}, "model.layers.16"),
        ({"attention_bias": True}, "attention_bias"),
        ({"head_dim": 32}, "head_dim"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling"),
        ({"num_key_value_heads": True}, "num_key_value_heads"),
        ({"num_attention_heads": 64, "num_key_value_heads": 64}, "even hidden size per head"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"rope_theta": -10000.0}, "rope_theta"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"pad_token_id": 10**6}, "pad_token_id"),
        ({"pad_token_id": "0"}, "pad_token_id"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder, entries, words):
    edit_json(folder / "config.json", **entries)
    with pytest.raises(BadInput, match=words):
        open_checkpoint(folder)


def test_a_path_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(BadInput, match="a folder"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(BadInput, match=r"config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="valid JSON"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(BadInput, match="JSON object"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("size_bytes", [0, 7, 1000, 2_000_000])
def test_truncated_weights_are_refused(folder, size_bytes):
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(size_bytes)
    with pytest.raises(BadInput, match=r"model\.safetensors.*complete safetensors"):
        open_checkpoint(folder)


def test_weights_of_another_kind_are_refused(folder):
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS, metadata={"format": "np"})
    with pytest.raises(BadInput, match="format=pt"):
        open_checkpoint(folder)
    (folder / WEIGHTS).rename(folder / "other.safetensors")
    with pytest.raises(BadInput, match=r"a checkpoint with model\.safetensors"):
        open_checkpoint(folder)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(BadInput, match=r"pytorch_model\.bin.*safetensors only"):
        open_checkpoint(folder)


def test_missing_misshapen_and_quantized_tensors_are_refused(folder):
    name = "model.layers.3.mlp.up_proj.weight"
    edit_weights(folder, name, np.zeros((128, 64), dtype=np.int8))
    with pytest.raises(BadInput, match=r"layers\.3\.mlp\.up_proj\.weight as one of F32.*I8"):
        open_checkpoint(folder)
    edit_weights(folder, name, np.zeros((64, 128), dtype=np.float32))
    with pytest.raises(BadInput, match=r"layers\.3\.mlp\.up_proj\.weight of shape \(128, 64\)"):
        open_checkpoint(folder)
    edit_weights(folder, name, None)
    with pytest.raises(BadInput, match=r"holds model\.layers\.3\.mlp\.up_proj\.weight"):
        open_checkpoint(folder)


def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path):
    save_hf(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    shards = sorted(set(index["weight_map"].values()))
    swapped = {name: shards[shards.index(shard) - 1] for name, shard in index["weight_map"].items()}
    edit_json(tmp_path / INDEX, weight_map=swapped)
    with pytest.raises(BadInput, match="listed in"):
        open_checkpoint(tmp_path)
    edit_json(tmp_path / INDEX, weight_map={"x": "../elsewhere.safetensors"})
    with pytest.raises(BadInput, match="beside the index"):
        open_checkpoint(tmp_path)
    edit_json(tmp_path / INDEX, weight_map={})
    with pytest.raises(BadInput, match="weight_map"):
        open_checkpoint(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    (tmp_path / shards[1]).unlink()
    with pytest.raises(BadInput, match=f"{shards[1]}.*a shard that exists"):
        open_checkpoint(tmp_path)
    shutil.copy(tmp_path / shards[0], tmp_path / WEIGHTS)
    with pytest.raises(BadInput, match="not both"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "generation_config.json", MANIFEST])
def test_a_model_that_differs_from_its_manifest_is_refused_by_the_name_of_the_file(tiny, tmp_path, name):
    root = tmp_path / "models"
    shutil.copytree(tiny.path.parent, root)
    file = root / tiny.path.name / name
    changed = {"config.json": b" ", "generation_config.json": b"{}"}
    if name == WEIGHTS:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif name == MANIFEST:
        file.write_text("{}")
    else:
        with file.open("ab") as stream:
            stream.write(changed[name])
    with pytest.raises(BadInput, match=name):
        ensure_model("tiny_llama", root)


def test_a_model_that_lost_a_listed_file_is_refused(tiny, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny.path, copy)
    manifest = json.loads((copy / MANIFEST).read_text())
    edit_json(copy / MANIFEST, files=manifest["files"] | {"tokenizer.json": "0" * 64})
    with pytest.raises(BadInput, match=r"tokenizer\.json.*listed"):
        open_checkpoint(copy)


def test_a_model_is_generated_once_and_found_by_name_or_path(tmp_path, tiny):
    made = ensure_model("tiny_llama", tmp_path)
    written_at = (made.path / WEIGHTS).stat().st_mtime_ns
    assert ensure_model("tiny_llama", tmp_path, n_blocks=16) == made
    assert (made.path / WEIGHTS).stat().st_mtime_ns == written_at
    assert made.sha256 == tiny.sha256
    assert ensure_model(tiny.path, tmp_path) == tiny
    assert ensure_model("tiny_llama", tmp_path, n_blocks=17, seed=2).n_blocks == 17


def test_a_model_that_is_not_there_or_has_other_blocks_is_refused(tmp_path, tiny):
    with pytest.raises(BadInput, match="make models"):
        ensure_model("smollm2", tmp_path)
    with pytest.raises(BadInput, match="a folder"):
        ensure_model("tiny_lama", tmp_path)
    with pytest.raises(BadInput, match=r"n_blocks.*16"):
        ensure_model(tiny.path, tmp_path, n_blocks=12)


def test_the_plain_run_returns_what_it_fed_through_the_blocks(tiny):
    ids = prompts(tiny, 3, 6, seed=0)
    tokens, hidden = plain_run(tiny, ids, 5)
    assert (tokens.shape, tokens.dtype) == ((3, 5), np.int64)
    assert (hidden.shape, hidden.dtype) == ((3, 10, 64), np.float32)
    model: Any = load_plain(tiny)
    fed = torch.from_numpy(np.concatenate([ids, tokens[:, :-1]], axis=1))
    output = model(fed, output_hidden_states=True)
    assert output.logits[:, 5:].argmax(-1).tolist() == tokens.tolist()
    # transformers gives the last state after the norm, and the one that went into the last block
    normed = model.model.norm(torch.from_numpy(hidden))
    torch.testing.assert_close(normed, output.hidden_states[-1], atol=1e-4, rtol=0)
    mask = torch.full((10, 10), torch.finfo(torch.float32).min).triu(1).expand(3, 1, 10, 10)
    positions = torch.arange(10)[None]
    last = model.model.layers[-1](output.hidden_states[-2], attention_mask=mask, position_ids=positions)[0]
    torch.testing.assert_close(torch.from_numpy(hidden), last, atol=1e-4, rtol=0)


def test_the_plain_run_leaves_the_number_of_threads_alone(tiny):
    before = torch.get_num_threads()
    plain_run(tiny, prompts(tiny, 1, 2, seed=0), 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("ids", "new_tokens", "words"),
    [
        (np.zeros((0, 4), dtype=np.int64), 1, "at least one row"),
        (np.zeros(4, dtype=np.int64), 1, "at least one row"),
        (np.full((1, 4), 256), 1, "0 to 255"),
        (np.full((1, 4), -1), 1, "0 to 255"),
        (np.zeros((1, 4), dtype=np.int64), 0, "new_tokens"),
        (np.zeros((1, 4), dtype=np.int64), 4093, "1 to 4092"),
    ],
)
def test_a_plain_run_that_cannot_work_is_refused(tiny, ids, new_tokens, words):
    with pytest.raises(BadInput, match=words):
        plain_run(tiny, ids, new_tokens)


def test_prompts_depend_on_seed_and_row_only(tiny):
    ids = prompts(tiny, 4, 20, seed=7)
    assert (ids.shape, ids.dtype) == ((4, 20), np.int64)
    assert ids.min() >= 0
    assert ids.max() < tiny.vocab_size
    assert len({tuple(row) for row in ids.tolist()}) == 4
    assert np.array_equal(prompts(tiny, 2, 12, seed=7), ids[:2, :12])
    assert not np.array_equal(prompts(tiny, 4, 20, seed=8), ids)
    assert decode(tiny, ids) is None


@pytest.mark.parametrize(
    ("batch", "tokens", "seed", "field"), [(0, 4, 0, "batch"), (1, 0, 0, "tokens"), (1, 4, -1, "seed")]
)
def test_prompts_out_of_range_are_refused(tiny, batch, tokens, seed, field):
    with pytest.raises(BadInput, match=field):
        prompts(tiny, batch, tokens, seed)
