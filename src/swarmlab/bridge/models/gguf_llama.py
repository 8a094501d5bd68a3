"""Turns a GGUF file of a Llama with a byte-level BPE tokenizer into a Hugging Face checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from swarmlab.errors import BadInput

BLOCK_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OTHER_PARTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
CONTROL_TOKEN = 3  # in tokenizer.ggml.token_type
# How text is cut before merges apply, by tokenizer.ggml.pre; smollm: digit by digit, then as GPT-2 does.
KNOWN_PRE_TOKENIZERS = ("smollm",)


def convert(source: Path, folder: Path) -> None:
    """Write config, bfloat16 weights and tokenizer into ``folder``.

    :raises BadInput: if the file is not a GGUF, or holds something this conversion does not know
    """
    try:
        reader = gguf.GGUFReader(source)
    except (OSError, ValueError, IndexError) as error:
        raise BadInput("gguf", str(source), f"a complete GGUF file ({error})") from None
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama":
        kind = fields.get("general.architecture")
        raise BadInput("gguf", str(source), f"the llama architecture, not {kind}")
    if fields["tokenizer.ggml.model"] != "gpt2" or fields["tokenizer.ggml.pre"] not in KNOWN_PRE_TOKENIZERS:
        allowed = f"a byte-level BPE tokenizer of kind {', '.join(KNOWN_PRE_TOKENIZERS)}"
        raise BadInput("gguf", str(source), allowed)
    config = _config(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_json(folder / "config.json", config)
    tensors = {hf_name(tensor.name): _to_bfloat16(tensor, config) for tensor in reader.tensors}
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    _write_tokenizer(folder, fields)


def hf_name(name: str) -> str:
    """Name of a tensor in a Hugging Face Llama.

    :raises BadInput: if a Llama has no such tensor
    """
    if name in OTHER_PARTS:
        return OTHER_PARTS[name]
    match name.split("."):
        case ["blk", number, part, "weight"] if part in BLOCK_PARTS:
            return f"model.layers.{number}.{BLOCK_PARTS[part]}.weight"
    raise BadInput("gguf", name, "tensors of a plain Llama only")


def pairs_to_halves(weight: npt.NDArray[Any], n_heads: int) -> npt.NDArray[Any]:
    """Reorder the outputs of a query or key projection from llama.cpp's rotary layout to transformers'.

    llama.cpp rotates neighbours (0, 1), (2, 3), ...; transformers rotates i with i + head_dim / 2.
    """
    outputs, inputs = weight.shape
    pairs = weight.reshape(n_heads, outputs // n_heads // 2, 2, inputs)
    return pairs.transpose(0, 2, 1, 3).reshape(outputs, inputs)


def _to_bfloat16(tensor: gguf.ReaderTensor, config: Mapping[str, Any]) -> torch.Tensor:
    weight = gguf.dequantize(tensor.data, tensor.tensor_type)
    if tensor.name.endswith("attn_q.weight"):
        weight = pairs_to_halves(weight, config["num_attention_heads"])
    elif tensor.name.endswith("attn_k.weight"):
        weight = pairs_to_halves(weight, config["num_key_value_heads"])
    return torch.from_numpy(np.array(weight, dtype=np.float32)).to(torch.bfloat16)


def _config(fields: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        "hidden_act": "silu",
        # stored in single precision: 9.999999747e-06 means 1e-05
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
        "rope_scaling": None,
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
        "torch_dtype": "bfloat16",
    }


def _write_tokenizer(folder: Path, fields: Mapping[str, Any]) -> None:
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    numbers = {role: fields.get(f"tokenizer.ggml.{name}_token_id") for role, name in special.items()}
    content = {role: tokens[number] for role, number in numbers.items() if number is not None}
    content |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    content |= {"model_max_length": fields["llama.context_length"]}
    if "tokenizer.chat_template" in fields:
        content["chat_template"] = fields["tokenizer.chat_template"]
    _write_json(folder / "tokenizer_config.json", content)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
