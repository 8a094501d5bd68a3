"""Opens a Hugging Face Llama checkpoint and finds what is wrong with it before anything starts. No torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from swarmlab.bridge.models.file_hash import known_sha256
from swarmlab.bridge.models.llama_shapes import SYNTHETIC
from swarmlab.bridge.models.manifest import check_manifest, content_sha256, read_manifest
from swarmlab.errors import BadInput

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Loaded where they exist, and so part of the hash.
OTHER_FILES = (
    INDEX,
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
)
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was opened and found complete.

    :param path: the folder, absolute
    :param sha256: of all files that would be loaded (see ``manifest.content_sha256``)
    :param hidden_size: numbers per hidden state
    :param dtype: of the stored block weights (``float32 | float16 | bfloat16``)
    :param max_tokens: positions the model was made for
    :param dht_prefix: under which its blocks are announced; differs for different content
    :param config: config.json, with the entries that older ones leave out
    """

    path: Path
    model_id: str
    sha256: str
    n_blocks: int
    hidden_size: int
    vocab_size: int
    max_tokens: int
    dtype: str
    has_tokenizer: bool
    dht_prefix: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def identity(self) -> dict[str, str]:
        """What ``run.json`` says of it."""
        return {"id": self.model_id, "hash": self.sha256}


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Read the headers and hash the contents of a checkpoint.

    :raises BadInput: naming the file or the entry that cannot work
    """
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise _bad(folder, "a folder with a Hugging Face Llama checkpoint")
    config = _read_config(folder)
    weight_files = _weight_files(folder)
    stored = _read_headers(folder, weight_files)
    dtype = _check_tensors(folder, config, stored)
    others = [name for name in OTHER_FILES if (folder / name).is_file()]
    hashes = {name: known_sha256(folder / name) for name in ("config.json", *weight_files, *others)}
    manifest = read_manifest(folder)
    if manifest is not None:
        check_manifest(folder, manifest, hashes)
    model_id = manifest["model_id"] if manifest else folder.name
    sha256 = content_sha256(hashes)
    return Checkpoint(
        path=folder,
        model_id=model_id,
        sha256=sha256,
        n_blocks=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        vocab_size=config["vocab_size"],
        max_tokens=config["max_position_embeddings"],
        dtype=dtype,
        has_tokenizer=bool({"tokenizer.json", "tokenizer.model"} & set(others)),
        dht_prefix=_dht_prefix(model_id, sha256),
        config=config,
    )


def _bad(file: Path, allowed: str) -> BadInput:
    return BadInput("model.path", str(file), allowed)


def _dht_prefix(model_id: str, sha256: str) -> str:
    # Petals joins the prefix and block numbers with '.' and ' '. The hash keeps two models of one name apart.
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', model_id)}-{sha256[:8]}"


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except OSError as error:
        raise _bad(file, f"a file that can be read ({error.strerror})") from None
    except ValueError as error:
        raise _bad(file, f"valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise _bad(file, "a JSON object")
    return content


def _read_config(folder: Path) -> dict[str, Any]:
    """config.json with the entries that older ones leave out; refused if it would be misread here."""
    file = folder / "config.json"
    config = _read_json(file)
    architectures = config.get("architectures") or ["LlamaForCausalLM"]
    if config.get("model_type") != "llama" or architectures != ["LlamaForCausalLM"]:
        raise _bad(file, f"a Llama (LlamaForCausalLM), not {config.get('model_type')} {architectures}")
    config.setdefault("max_position_embeddings", 2048)
    config.setdefault("tie_word_embeddings", False)
    if config.get("num_key_value_heads") is None:
        config["num_key_value_heads"] = config.get("num_attention_heads")
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    for entry in (*sizes, "num_key_value_heads", "max_position_embeddings"):
        value = config.get(entry)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _bad(file, f"an integer of at least 1 as {entry}, not {value!r}")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    if config["hidden_size"] % heads or heads % kv_heads:
        raise _bad(file, "a hidden_size divisible by the heads, and heads divisible by the key-value heads")
    if config["hidden_size"] // heads % 2:
        raise _bad(file, "an even hidden size per head (rotary embeddings turn pairs)")
    _check_optional_numbers(file, config)
    _refuse_newer_features(file, config)
    return config


def _check_optional_numbers(file: Path, config: Mapping[str, Any]) -> None:
    """What transformers would only stumble over in a server or client that has been started."""
    for entry in ("rms_norm_eps", "rope_theta", "initializer_range"):
        value = config.get(entry, 1.0)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value <= 0:
            raise _bad(file, f"a number above 0 as {entry}, not {value!r}")
    padding = config.get("pad_token_id")
    whole = isinstance(padding, int) and not isinstance(padding, bool)
    if padding is not None and not (whole and -config["vocab_size"] <= padding < config["vocab_size"]):
        raise _bad(file, f"null or the number of a token as pad_token_id, not {padding!r}")
    if config.get("hidden_act", "silu") != "silu":
        raise _bad(file, f"silu as hidden_act (the activation of Llama), not {config['hidden_act']!r}")


def _refuse_newer_features(file: Path, config: Mapping[str, Any]) -> None:
    # transformers 4.34 ignores these entries without a word, so the output would be silently wrong.
    for entry in ("attention_bias", "mlp_bias"):
        if config.get(entry):
            raise _bad(file, f"{entry} false (petals' Llama blocks have no biases)")
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    if config.get("head_dim") not in (None, head_dim):
        raise _bad(file, f"head_dim {head_dim} (hidden size / heads), not {config['head_dim']}")
    if config.get("rope_scaling") is not None:
        raise _bad(file, "rope_scaling null (petals 2.2 was not tried with scaled rotary embeddings)")


def _weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files that would be loaded."""
    single, index = (folder / WEIGHTS).is_file(), (folder / INDEX).is_file()
    if single and index:
        raise _bad(folder, f"{WEIGHTS} or {INDEX}, not both (loaders disagree which one counts)")
    if single:
        return [WEIGHTS]
    if not index:
        pickled = sorted(file.name for file in folder.glob("pytorch_model*"))
        if pickled:
            raise _bad(folder / pickled[0], "safetensors only (a pickle can run code; convert it first)")
        raise _bad(folder, f"a checkpoint with {WEIGHTS} or {INDEX}")
    weight_map = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _bad(folder / INDEX, "an index with a weight_map")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise _bad(folder / INDEX, f"safetensors files beside the index, not {name}")
        if not (folder / name).is_file():
            raise _bad(folder / name, "a shard that exists (the index names it)")
    return names


def _read_headers(folder: Path, names: list[str]) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """File, shape and dtype of every stored tensor, by name. Opening checks the length of each file."""
    stored: dict[str, tuple[str, tuple[int, ...], str]] = {}
    for name in names:
        try:
            with safe_open(str(folder / name), framework="numpy") as tensors:
                if (tensors.metadata() or {}).get("format") != "pt":
                    raise _bad(
                        folder / name, "safetensors with the metadata format=pt, as transformers writes it"
                    )
                for key in tensors.keys():  # noqa: SIM118 (the file object itself cannot be iterated)
                    piece = tensors.get_slice(key)
                    stored[key] = (name, tuple(piece.get_shape()), piece.get_dtype())
        except (SafetensorError, OSError) as error:
            raise _bad(folder / name, f"a complete safetensors file ({error})") from None
    return stored


def _check_tensors(
    folder: Path, config: Mapping[str, Any], stored: Mapping[str, tuple[str, tuple[int, ...], str]]
) -> str:
    """Hold what is stored against the config; returns the dtype of the block weights."""
    weight_map = _read_json(folder / INDEX)["weight_map"] if (folder / INDEX).is_file() else None
    expected = expected_tensors(config)
    if SYNTHETIC in config:  # its blocks are drawn
        expected = {key: shape for key, shape in expected.items() if not key.startswith("model.layers.")}
    for key, shape in expected.items():
        if key not in stored:
            raise _bad(folder, f"a checkpoint that holds {key} {shape}")
        name, stored_shape, dtype = stored[key]
        if stored_shape != shape:
            raise _bad(folder / name, f"{key} of shape {shape} as config.json says, not {stored_shape}")
        if dtype not in DTYPES:
            raise _bad(folder / name, f"{key} as one of {', '.join(DTYPES)}, not {dtype}")
        if weight_map is not None and weight_map.get(key) != name:
            raise _bad(folder / INDEX, f"{key} listed in {name}, where it is")
    a_block_weight = "model.layers.0.self_attn.q_proj.weight"
    return DTYPES[stored[a_block_weight if a_block_weight in expected else "model.embed_tokens.weight"][2]]


def expected_tensors(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor that a Llama of this config loads, by name."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv_size = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    block = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv_size, hidden),
        "self_attn.v_proj": (kv_size, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{number}.{part}.weight": shape for part, shape in block.items()}
    return shapes
