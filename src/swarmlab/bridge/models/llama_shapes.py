"""The Llama models that swarmlab knows by name: their sizes, and what config.json says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarmlab.errors import BadInput

# config.json of a synthetic model has an entry of this name.
SYNTHETIC = "swarmlab_synthetic"


@dataclass(frozen=True)
class LlamaShape:
    """Sizes as config.json names them.

    :param n_blocks: of the whole model
    :param repository: where its weights are published; empty for a model of our own
    """

    n_blocks: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    vocab_size: int = 32000
    max_tokens: int = 2048
    rms_norm_eps: float = 1e-5
    repository: str = ""


LLAMA_65B = LlamaShape(80, 8192, 22016, 64, 64, repository="enoch/llama-65b-hf")
LLAMA2_70B = LlamaShape(80, 8192, 28672, 64, 8, max_tokens=4096, repository="meta-llama/Llama-2-70b-hf")
# About a tenth in every width; the head is as wide as the 65B's. A fifth in depth: fewer blocks make no swarm.
LLAMA_65B_TENTH = LlamaShape(16, 768, 2064, 6, 6, vocab_size=3200)

PUBLISHED = {"llama_65b": LLAMA_65B, "llama2_70b": LLAMA2_70B}
DRAWN = {"llama_65b_synthetic": LLAMA_65B, "llama_65b_tenth": LLAMA_65B_TENTH}


def llama_config(shape: LlamaShape, dtype: str) -> dict[str, Any]:
    """config.json of a Llama that never ends a generation by itself."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.n_blocks,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_tokens,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "torch_dtype": dtype,
    }


def check_shape(name: str, config: Mapping[str, Any], where: str) -> None:
    """Refuse a checkpoint that is not the published model that it was given as.

    :raises BadInput: naming the first size that differs
    """
    shape = PUBLISHED[name]
    wanted = {
        "num_hidden_layers": shape.n_blocks,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
    }
    for entry, value in wanted.items():
        found = (
            config.get(entry) or config["num_attention_heads"]
        )  # old configs leave the key-value heads out
        if found != value:
            allowed = f"a checkpoint with {entry} {value}, as {name} has (or model={where})"
            raise BadInput("model.path", f"{where} with {entry} {found}", allowed)
