"""What tests of loading and storing blocks share; import it after ``compat.apply()``."""

from __future__ import annotations

from typing import Any

import torch
from petals.utils.auto_config import AutoDistributedConfig
from petals.utils.convert_block import QuantType

from swarmlab.bridge.blocks.loader import BlockRecipe


def recipe_for(
    path: object,
    quant: QuantType = QuantType.NF4,
    dtype: torch.dtype = torch.float32,
    adapters: tuple[str, ...] = (),
) -> BlockRecipe:
    config: Any = AutoDistributedConfig.from_pretrained(str(path))
    return BlockRecipe(str(path), config, dtype, quant, adapters=adapters)


def assert_same_block(one: Any, other: Any) -> None:
    """Every tensor, buffer and number of quantization state, bit by bit, and then the outputs."""
    for name in ("state_dict", "named_buffers"):
        mine, theirs = dict(getattr(one, name)()), dict(getattr(other, name)())
        assert list(mine) == list(theirs)
        for key, value in mine.items():
            assert value.dtype is theirs[key].dtype, key
            assert torch.equal(value, theirs[key]), key
    for mine, theirs in zip(one.modules(), other.modules(), strict=True):
        assert type(mine) is type(theirs)
        assert mine.training == theirs.training
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert type(mine) is type(theirs)
        assert mine.requires_grad is theirs.requires_grad is False
        assert mine.device == theirs.device
    assert torch.equal(output(one), output(other))


def output(module: Any, adapter: str | None = None) -> torch.Tensor:
    from petals.utils.peft import using_adapter

    weight = module.module_shards[0].input_layernorm.weight
    states = torch.randn(2, 5, weight.numel(), generator=torch.Generator().manual_seed(0)).to(weight.dtype)
    with torch.inference_mode(), using_adapter(adapter):
        return module(states)[0]
