"""Loads one block for a server, and says what each part of it took.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from petals.server.from_pretrained import load_pretrained_block
from petals.utils.convert_block import QuantType, convert_block, quantize_module

from swarmlab.bridge.blocks import slow_disk

STORE, CHECKPOINT, DRAWN = "store", "checkpoint", "drawn"


@dataclass(frozen=True)
class LoadedBlock:
    """A block ready to serve.

    :param module: what petals' ``convert_block`` returns: frozen, on its device, with its adapters
    :param bytes_read: of weights and adapters, as they lie in the file they came from
    :param read_s: until the bytes were in memory
    :param quantize_s: with the way of the unquantized weights to the device; 0 without quantization or from a store
    :param adapter_s: reading the adapters and putting them in
    :param to_device_s: everything else between reading and being ready
    :param source: ``store``, ``checkpoint``, or ``drawn`` for a synthetic model
    :param store_s: keeping the block in the store, so that it need not be made again; 0 if the store did not take it
    """

    module: torch.nn.Module
    bytes_read: int
    read_s: float
    quantize_s: float
    adapter_s: float
    to_device_s: float
    source: str
    store_s: float = 0.0


class BlockLoader(Protocol):
    """Where a server gets its blocks from."""

    def load(self, block: int) -> LoadedBlock:
        """
        :raises Exception: whatever reading or converting raises; nothing is kept of the block
        """
        ...


@dataclass(frozen=True)
class BlockRecipe:
    """All that decides what a loaded block is.

    :param model_path: checkpoint folder, or the name of a repository in the hub's cache
    :param config: petals' distributed config of the model
    :param torch_dtype: of what is not quantized, and of the computation
    :param devices: more than one means tensor parallelism
    :param adapters: LoRA adapters, each a folder or a repository
    """

    model_path: str
    config: Any
    torch_dtype: torch.dtype
    quant_type: QuantType
    devices: tuple[torch.device, ...] = (torch.device("cpu"),)
    adapters: tuple[str, ...] = ()
    revision: str | None = None
    token: str | bool | None = None
    cache_dir: str | None = None
    max_disk_space: int | None = None

    @classmethod
    def of_server(cls, server: Any) -> BlockRecipe:
        """
        :param server: petals' ``Server``
        """
        return cls(
            model_path=str(server.converted_model_name_or_path),
            config=server.block_config,
            torch_dtype=server.torch_dtype,
            quant_type=server.quant_type,
            devices=tuple(server.tensor_parallel_devices),
            adapters=tuple(server.adapters),
            revision=server.revision,
            token=server.token,
            cache_dir=server.cache_dir,
            max_disk_space=server.max_disk_space,
        )

    @property
    def device(self) -> torch.device:
        """Where the block's output goes."""
        return self.devices[0]

    def hub_options(self) -> dict[str, Any]:
        return {"token": self.token, "cache_dir": self.cache_dir, "max_disk_space": self.max_disk_space}


# called with recipe, adapter and block: the adapter's config, and its tensors for that block
AdapterReader = Callable[[BlockRecipe, str, int], tuple[Any, dict[str, torch.Tensor]]]


class PetalsLoader:
    """Reads a checkpoint with petals' own code and converts as petals does."""

    def __init__(self, recipe: BlockRecipe) -> None:
        self._recipe = recipe

    def load(self, block: int) -> LoadedBlock:
        recipe = self._recipe
        started = time.perf_counter()
        with slow_disk.watched_reads() as reads:
            module = load_pretrained_block(
                recipe.model_path,
                block,
                config=recipe.config,
                torch_dtype=recipe.torch_dtype,
                revision=recipe.revision,
                **recipe.hub_options(),
            )
        read_s = time.perf_counter() - started
        loaded = converted(recipe, block, module, read_s, sum(read.n_bytes for read in reads))
        return with_adapters(recipe, block, loaded)


def converted(
    recipe: BlockRecipe,
    block: int,
    module: torch.nn.Module,
    read_s: float,
    bytes_read: int,
    source: str = CHECKPOINT,
) -> LoadedBlock:
    """Quantize a block that was read in full and bring it to its device; adapters are left out.

    The same as petals' ``convert_block`` (a test holds them together), in two steps so that each can be timed. With
    several devices the weights are cut before they are quantized, and petals does all of it in one.
    """
    started = time.perf_counter()
    if len(recipe.devices) == 1 and recipe.quant_type is not QuantType.NONE:
        module = quantize_module(module.requires_grad_(False), quant_type=recipe.quant_type).to(recipe.device)
    quantized_s = _now(recipe)
    left = recipe.quant_type if len(recipe.devices) > 1 else QuantType.NONE
    module = convert_block(module, block, recipe.config, recipe.devices, recipe.device, left, freeze=True)
    to_device_s = _now(recipe) - quantized_s
    return LoadedBlock(module, bytes_read, read_s, quantized_s - started, 0.0, to_device_s, source)


def with_adapters(
    recipe: BlockRecipe, block: int, loaded: LoadedBlock, read: AdapterReader | None = None
) -> LoadedBlock:
    """Put the recipe's LoRA adapters into a converted block.

    :param read: gives config and tensors; None reads the adapter's own files
    :raises FileNotFoundError: if an adapter's folder holds no adapter in safetensors
    :raises ValueError: for int8 blocks: peft 0.5 makes layers for them that today's bitsandbytes refuses
    """
    if not recipe.adapters:
        return loaded
    if recipe.quant_type is QuantType.INT8:
        raise ValueError("LoRA adapters need blocks in nf4 or without quantization, not int8")
    from petals.utils import peft

    started, bytes_read = time.perf_counter(), 0
    peft.create_lora_adapter(loaded.module, quant_type=recipe.quant_type)
    for adapter in recipe.adapters:
        adapter_config, tensors = (read or read_adapter)(recipe, adapter, block)
        bytes_read += slow_disk.touch(tensors)
        peft.add_adapter_to_block(loaded.module, block, adapter, adapter_config, tensors)
    adapter_s = _now(recipe) - started
    return replace(loaded, adapter_s=adapter_s, bytes_read=loaded.bytes_read + bytes_read)


def read_adapter(recipe: BlockRecipe, adapter: str, block: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """Config and tensors of one adapter for one block.

    Petals asks the hub whether each adapter is in safetensors, for every block again; a folder can be looked at.
    """
    from petals.utils import peft

    if not Path(adapter).is_dir():
        return peft.load_peft(adapter, block_idx=block, **recipe.hub_options())
    for name in (peft.CONFIG_NAME, peft.SAFETENSORS_WEIGHTS_NAME):
        if not Path(adapter, name).is_file():
            raise FileNotFoundError(f"adapter {adapter} has no {name}")
    return peft.get_adapter_from_repo(adapter, block)


def _now(recipe: BlockRecipe) -> float:
    """Seconds, once the device has done what it was asked for."""
    if recipe.device.type == "cuda":
        torch.cuda.synchronize(recipe.device)
    return time.perf_counter()
