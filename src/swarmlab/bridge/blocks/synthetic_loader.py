"""Loads blocks of a synthetic model: their weights are drawn, not read.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from accelerate import init_empty_weights

from swarmlab.bridge.blocks.loader import DRAWN, BlockRecipe, LoadedBlock, converted, with_adapters
from swarmlab.bridge.models.synthetic import block_tensors, content_of_drawn


class SyntheticLoader:
    """Draws what petals would read, and converts it as petals does."""

    def __init__(self, recipe: BlockRecipe) -> None:
        self._recipe = recipe

    def load(self, block: int) -> LoadedBlock:
        """As ``BlockLoader.load``; ``read_s`` is the time of drawing, no byte is read.

        :raises IndexError: if the model has no such block
        """
        recipe = self._recipe
        if not 0 <= block < recipe.config.num_hidden_layers:
            raise IndexError(f"block {block} of {recipe.config.num_hidden_layers}")
        started = time.perf_counter()
        with init_empty_weights():
            module: Any = recipe.config.block_class(recipe.config)
        for name, values in block_tensors(_plain(recipe), block).items():
            owner, _, child = name.rpartition(".")
            weight = torch.from_numpy(values).to(recipe.torch_dtype)
            setattr(module.get_submodule(owner), child, torch.nn.Parameter(weight, requires_grad=False))
        loaded = converted(recipe, block, module, time.perf_counter() - started, 0, DRAWN)
        return with_adapters(recipe, block, loaded)


def content_of_synthetic(recipe: BlockRecipe, block: int) -> str:
    """What ``StoreLoader`` keeps a drawn block under."""
    return content_of_drawn(_plain(recipe), block)


def _plain(recipe: BlockRecipe) -> dict[str, Any]:
    """The entries of the config that decide the weights."""
    names = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "tie_word_embeddings",
        "swarmlab_synthetic",
    )
    return {name: getattr(recipe.config, name) for name in names}
