"""Loads blocks through a block store: what is not there, or not to be trusted, is made anew and kept.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch
from hivemind.utils import get_logger
from petals.utils.convert_block import QuantType

from swarmlab.bridge.block_store import BlockKey, BlockStore, StoreFull
from swarmlab.bridge.blocks import slow_disk
from swarmlab.bridge.blocks.content import NotOnDisk, content_of_adapter, content_of_block, revision_of
from swarmlab.bridge.blocks.loader import (
    STORE,
    BlockLoader,
    BlockRecipe,
    LoadedBlock,
    read_adapter,
    with_adapters,
)
from swarmlab.bridge.blocks.state import WrongTensors, restored, state_of

logger = get_logger(__name__)

VERSIONS_OF = ("bitsandbytes", "petals", "safetensors", "swarmlab", "torch", "transformers")
# from a recipe and a block to a hash of what the block is made from
ContentOf = Callable[[BlockRecipe, int], str]


class StoreLoader:
    """
    :param recipe: with its adapters
    :param make: loads a block that is not in the store, without adapters
    :param content_of: hash of what ``make`` makes a block from; may raise NotOnDisk
    """

    def __init__(
        self,
        recipe: BlockRecipe,
        store: BlockStore,
        make: BlockLoader,
        content_of: ContentOf = content_of_block,
    ) -> None:
        if len(recipe.devices) > 1:
            raise ValueError("blocks that are cut for several devices cannot be kept")
        self._recipe, self._store, self._make, self._content_of = recipe, store, make, content_of
        self._refuses = False

    def load(self, block: int) -> LoadedBlock:
        """As ``BlockLoader.load``; a store that fails costs its advantage, never the block."""
        key = self.key(block)
        loaded = self._stored(key, block) if key else None
        if loaded is None:
            loaded = self._made(key, block)
        return with_adapters(self._recipe, block, loaded, self._read_adapter)

    def key(self, block: int) -> BlockKey | None:
        """Under which a block is kept; None if nobody can say what it is made from."""
        try:
            return block_key(self._recipe, block, self._content_of(self._recipe, block))
        except (NotOnDisk, OSError) as error:
            logger.warning(f"Block store is not used for block {block}: {error}")
            return None

    def keeps(self, block: int) -> bool:
        """Whether the block is in the store now, as far as its name says."""
        key = self.key(block)
        return key is not None and (self._store.folder / key.file_name).is_file()

    def _stored(self, key: BlockKey, block: int) -> LoadedBlock | None:
        started = time.perf_counter()
        found = self._store.get(key)
        if found is None:
            return None
        slow_disk.pause()
        read_s = time.perf_counter() - started
        try:
            module = restored(self._recipe, block, found.tensors)
        except WrongTensors as error:
            self._store.reject(key, str(error))
            return None
        if self._recipe.device.type == "cuda":
            torch.cuda.synchronize(self._recipe.device)
        to_device_s = time.perf_counter() - started - read_s
        return LoadedBlock(module, found.n_bytes, read_s, 0.0, 0.0, to_device_s, STORE)

    def _made(self, key: BlockKey | None, block: int) -> LoadedBlock:
        loaded = self._make.load(block)
        # files that were exchanged while they were read must not be kept under the old name
        if key is None or self.key(block) != key:
            return loaded
        started = time.perf_counter()
        kept = self._keep(key, lambda: state_of(loaded.module), _facts(self._recipe))
        return replace(loaded, store_s=time.perf_counter() - started if kept else 0.0)

    def _read_adapter(
        self, recipe: BlockRecipe, adapter: str, block: int
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        """Kept by the side of its block: an adapter's own file holds all blocks, and a hub may be asked for it."""
        key = adapter_key(recipe, adapter, block)
        found = self._store.get(key) if key else None
        if found is not None:
            return found.facts["config"], found.tensors
        config, tensors = read_adapter(recipe, adapter, block)
        if key is not None and adapter_key(recipe, adapter, block) == key:  # as for blocks
            self._keep(key, lambda: tensors, {"config": config, "adapter": adapter})
        return config, tensors

    def _keep(
        self, key: BlockKey, tensors: Callable[[], dict[str, torch.Tensor]], facts: dict[str, Any]
    ) -> bool:
        """Whether the store took it; says so once when it begins to refuse, and once when that is over."""
        try:
            self._store.put(key, tensors(), facts)
        except Exception as error:  # noqa: BLE001 - the disk is full, or there is no memory for a copy
            if not self._refuses:
                reason = error if isinstance(error, StoreFull) else f"{type(error).__name__}: {error}"
                logger.warning(f"{reason}; the server goes on without, and tries again with each block")
            self._refuses = True
            return False
        if self._refuses:
            logger.info(f"Block store takes blocks again, {key.label} is the first")
        self._refuses = False
        return True


def adapter_key(recipe: BlockRecipe, adapter: str, block: int) -> BlockKey | None:
    """Under which an adapter's part for a block is kept; None if nobody can say what it holds."""
    with suppress(NotOnDisk, OSError):
        identity = {"adapter": content_of_adapter(recipe, adapter), "block": block}
        return BlockKey(f"adapter-{block:03d}", identity)
    return None


def block_key(recipe: BlockRecipe, block: int, content: str) -> BlockKey:
    """
    :param content: hash of what the block is made from
    """
    quant, dtype = recipe.quant_type.name.lower(), str(recipe.torch_dtype).removeprefix("torch.")
    identity: dict[str, Any] = {"content": content, "block": block, "quant": quant, "dtype": dtype}
    if recipe.quant_type is not QuantType.NONE:
        # another version, or a GPU's kernels, may round otherwise
        identity |= {"bitsandbytes": version("bitsandbytes"), "made_on": recipe.device.type}
    return BlockKey(f"block-{block:03d}-{quant}-{dtype}", identity)


def _facts(recipe: BlockRecipe) -> dict[str, Any]:
    with suppress(NotOnDisk):
        revision = revision_of(recipe)
        versions = {name: version(name) for name in VERSIONS_OF}
        return {"model": recipe.model_path, "revision": revision, "versions": versions}
    return {}
