"""What a server's memory holds: weights, attention caches, what a backward pass needs. Pure.

The formulas are those by which petals 2.2 fills a GPU with blocks (``Server._choose_num_blocks`` and
``block_utils.get_block_size``); tests hold them against petals itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 2**30

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
QUANTS = ("none", "int8", "nf4")
# Bytes per weight; nf4 as petals measured it, with its two levels of scales.
QUANT_BYTES = {"int8": 1.0, "nf4": 4.25 / 8}
DESCRIPTIONS = 1.01  # petals' allowance for what describes the tensors
# Petals' estimate of what a backward pass takes: 2 GiB for BLOOM, whose hidden states have 14336 numbers.
AUTOGRAD_BYTES_PER_HIDDEN = 2 * GIB / 14336


@dataclass(frozen=True)
class BlockShape:
    """Sizes of a Llama's blocks, as config.json names them."""

    n_blocks: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> BlockShape:
        """
        :param config: config.json of a Llama
        """
        heads = config["num_attention_heads"]
        return cls(
            n_blocks=config["num_hidden_layers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
        )

    @property
    def parameters(self) -> int:
        """Of one block: attention, feed-forward part, two norms."""
        kv_size = self.hidden_size // self.heads * self.kv_heads
        attention = 2 * self.hidden_size * (self.hidden_size + kv_size)
        return attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size


def weight_bytes(shape: BlockShape, dtype: str, quant: str) -> int:
    """Memory of one block's weights.

    :param dtype: ``float32``, ``float16`` or ``bfloat16``; counts without quantization only
    :param quant: ``none``, ``int8`` or ``nf4``
    """
    each = QUANT_BYTES.get(quant, ITEM_BYTES[dtype])
    return round(shape.parameters * each * DESCRIPTIONS)


def cache_bytes(shape: BlockShape, dtype: str, cache_tokens: int) -> int:
    """Memory of the attention caches of one block.

    :param cache_tokens: of all sessions together
    """
    groups = shape.heads // shape.kv_heads
    return 2 * shape.hidden_size * cache_tokens // groups * ITEM_BYTES[dtype]


def autograd_bytes(shape: BlockShape) -> int:
    """Memory of a server for backward passes."""
    return math.ceil(AUTOGRAD_BYTES_PER_HIDDEN * shape.hidden_size)


@dataclass(frozen=True)
class Needs:
    """Memory of one server, in bytes.

    :param fixed: beside weights and caches: a process of its own, a CUDA context
    """

    n_blocks: int
    weights: int
    cache: int
    autograd: int
    fixed: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.autograd + self.fixed


def needs(
    shape: BlockShape, n_blocks: int, dtype: str, quant: str, cache_tokens: int, fixed: int = 0
) -> Needs:
    """What a server with so many blocks takes."""
    return Needs(
        n_blocks,
        n_blocks * weight_bytes(shape, dtype, quant),
        n_blocks * cache_bytes(shape, dtype, cache_tokens),
        autograd_bytes(shape),
        fixed,
    )


def blocks_that_fit(
    shape: BlockShape, memory_bytes: int, dtype: str, quant: str, cache_tokens: int, fixed: int = 0
) -> int:
    """Blocks that one server can hold in so much memory; with ``fixed`` 0, those that petals would choose."""
    each = weight_bytes(shape, dtype, quant) + cache_bytes(shape, dtype, cache_tokens)
    free = memory_bytes - fixed - AUTOGRAD_BYTES_PER_HIDDEN * shape.hidden_size
    return max(0, min(math.floor(free / each), shape.n_blocks))
