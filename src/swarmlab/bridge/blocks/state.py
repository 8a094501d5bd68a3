"""A converted block as plain tensors, and back, bit for bit: nf4 and int8 state of bitsandbytes, or native dtype.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate import init_empty_weights
from petals.utils.convert_block import QuantType, convert_block, quantize_module
from torch import nn

from swarmlab.bridge.blocks.loader import BlockRecipe

layers: Any = importlib.import_module("bitsandbytes.nn.modules")  # typed wrongly in part

# int8's layout; petals' blocks are always row-major, which is what bitsandbytes makes
LAYOUT = "weight_format"


class WrongTensors(Exception):
    """Tensors that are not those of the block that was asked for."""


def state_of(module: Any) -> dict[str, torch.Tensor]:
    """All that must be kept of a block that ``convert_block`` has just returned.

    Before its first use only: on a CPU, bitsandbytes repacks nf4 weights when they are first used.

    :param module: on one device, without adapters
    """
    (shard,) = module.module_shards
    return {name: tensor for name, tensor in shard.state_dict().items() if not name.endswith(LAYOUT)}


def restored(recipe: BlockRecipe, block: int, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """The block that those tensors were taken from, on the recipe's device.

    :raises WrongTensors: if one is missing, left over, or of another shape or dtype
    """
    left = dict(tensors)
    skeleton = _skeleton(recipe)
    for name, parent, child in list(_parameters(skeleton)):
        value = _restored_parameter(recipe, name, getattr(parent, child), left)
        setattr(parent, child, value)
    if left:
        raise WrongTensors(f"nothing takes {', '.join(sorted(left))}")
    return convert_block(skeleton, block, recipe.config, recipe.devices, recipe.device, QuantType.NONE)


def _skeleton(recipe: BlockRecipe) -> nn.Module:
    """The block's modules as petals makes them, with weights that nobody has written to."""
    with init_empty_weights():
        module = recipe.config.block_class(recipe.config)
    if recipe.quant_type is QuantType.NONE:
        return module.requires_grad_(False)
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            # memory that is never touched costs nothing; petals insists on linear layers on the CPU
            empty = torch.empty(layer.weight.shape, dtype=recipe.torch_dtype)
            layer.weight = nn.Parameter(empty, requires_grad=False)
    with torch.device("meta"):  # else each layer that replaces one is filled with random numbers first
        return quantize_module(module.requires_grad_(False), quant_type=recipe.quant_type)


def _parameters(module: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Full name, owner, and name at the owner."""
    for name, _ in module.named_parameters():
        owner, _, child = name.rpartition(".")
        yield name, module.get_submodule(owner), child


def _restored_parameter(
    recipe: BlockRecipe, name: str, empty: Any, left: dict[str, torch.Tensor]
) -> nn.Parameter:
    """Takes what belongs to a parameter out of ``left``."""
    device = recipe.device
    if isinstance(empty, layers.Params4bit):
        stats = {key: left.pop(key) for key in list(left) if key.startswith(f"{name}.")}
        data = _taken(left, name, ((empty.numel() + 1) // 2, 1), torch.uint8)
        return _nf4(name, tuple(empty.shape), data, stats, recipe)
    if isinstance(empty, layers.Int8Params):
        codes = _taken(left, name, tuple(empty.shape), torch.int8).to(device)
        scale_name = f"{name.removesuffix('weight')}SCB"
        scales = _taken(left, scale_name, (empty.shape[0],), torch.float32).to(device)
        return layers.Int8Params(codes, requires_grad=False, has_fp16_weights=False, CB=codes, SCB=scales)
    value = _taken(left, name, tuple(empty.shape), recipe.torch_dtype)
    return nn.Parameter(value.to(device), requires_grad=False)


def _nf4(
    name: str,
    shape: tuple[int, ...],
    data: torch.Tensor,
    stats: dict[str, torch.Tensor],
    recipe: BlockRecipe,
) -> nn.Parameter:
    try:
        weight = layers.Params4bit.from_prequantized(
            data, {key.removeprefix(f"{name}."): value for key, value in stats.items()}, device=recipe.device
        )
    except (ValueError, KeyError, AssertionError, AttributeError) as error:
        raise WrongTensors(f"{name}: no state of nf4 ({error})") from None
    if _described(weight.quant_state) != _expected_nf4(shape, recipe.torch_dtype):
        raise WrongTensors(f"{name}: not the state of nf4 for {shape} {recipe.torch_dtype}")
    return weight


def _described(state: Any) -> tuple[Any, ...]:
    """What can be told of a quantization state without knowing the numbers."""
    outer = (state.quant_type, tuple(state.shape), state.dtype, state.blocksize)
    arrays = [state.absmax, state.code, *([state.state2.absmax, state.state2.code] if state.nested else [])]
    return *outer, *((array.numel(), array.dtype) for array in arrays)


def _expected_nf4(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """As petals quantizes: one scale for 64 numbers, in 8 bits, and one scale of scales for 256 of those."""
    n_scales = -(-math.prod(shape) // 64)
    outer = ("nf4", shape, dtype, 64)
    arrays = (n_scales, torch.uint8), (16, torch.float32), (-(-n_scales // 256), torch.float32)
    return *outer, *arrays, (256, torch.float32)


def _taken(
    left: dict[str, torch.Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    if name not in left:
        raise WrongTensors(f"{name} is missing")
    value = left.pop(name)
    if tuple(value.shape) != shape or value.dtype is not dtype:
        raise WrongTensors(f"{name}: {value.dtype} {tuple(value.shape)}, not {dtype} {shape}")
    return value
