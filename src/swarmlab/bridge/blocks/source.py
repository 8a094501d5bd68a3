"""Where a server's blocks come from: a checkpoint, a block store, or a seed; and petals' own server told so.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hivemind.utils import get_logger
from petals.server import server as petals_server

from swarmlab.bridge.block_store import BlockStore, StoreFull
from swarmlab.bridge.blocks.content import content_of_block
from swarmlab.bridge.blocks.loader import BlockLoader, BlockRecipe, PetalsLoader
from swarmlab.bridge.blocks.store_loader import StoreLoader
from swarmlab.bridge.blocks.synthetic_loader import SyntheticLoader, content_of_synthetic
from swarmlab.bridge.models.synthetic import is_synthetic

logger = get_logger(__name__)

MARK = "swarmlab_block_source"


def loader_of(
    recipe: BlockRecipe, store_dir: str | Path | None = None, store_max_bytes: int | None = None
) -> BlockLoader:
    """The loader for a model of any kind.

    :param store_dir: folder of a block store; None for none
    """
    drawn = is_synthetic(vars(recipe.config))
    make = SyntheticLoader if drawn else PetalsLoader
    if store_dir and len(recipe.devices) > 1:
        logger.warning("Blocks that are cut for several devices are not kept: there is no block store")
    if not store_dir or len(recipe.devices) > 1:
        return make(recipe)
    try:
        store = BlockStore(store_dir, store_max_bytes)
    except StoreFull as error:
        logger.warning(f"{error}; the server goes on without")
        return make(recipe)
    content_of = content_of_synthetic if drawn else content_of_block
    return StoreLoader(recipe, store, make(replace(recipe, adapters=())), content_of)


def install(args: Mapping[str, Any]) -> None:
    """Have petals' own server, where it would read a checkpoint, take its blocks from elsewhere.

    Nothing is changed for an ordinary model without a store, nor by a second call.

    :param args: of a server: ``argv``, whose first entry is the model; ``store_dir`` and ``store_max_bytes``
    """
    entry: Any = petals_server
    if hasattr(entry, MARK) or not (args.get("store_dir") or _is_synthetic_folder(Path(args["argv"][0]))):
        return
    max_bytes = int(args["store_max_bytes"]) if args.get("store_max_bytes") else None
    loaders: dict[Any, BlockLoader] = {}

    def load_pretrained_block(model_name: str, block: int, **options: Any) -> dict[str, Any]:
        return {"model_path": str(model_name), "block": block, **options}  # a promise, redeemed by the next

    def convert_block(
        promise: dict[str, Any],
        block: int,
        config: Any,
        devices: Any,
        device: torch.device,
        quant_type: Any,
        adapters: Any = (),
        freeze: bool = True,
        **options: Any,
    ) -> torch.nn.Module:
        assert freeze
        assert block == promise["block"]
        assert device == devices[0]
        recipe = BlockRecipe(
            model_path=promise["model_path"],
            config=config,
            torch_dtype=promise["torch_dtype"],
            quant_type=quant_type,
            devices=tuple(devices),
            adapters=tuple(adapters or ()),
            revision=promise.get("revision"),
            **options,
        )
        return _load(loaders, recipe, block, args.get("store_dir"), max_bytes)

    entry.load_pretrained_block, entry.convert_block = load_pretrained_block, convert_block
    setattr(entry, MARK, True)


def _load(
    loaders: dict[Any, BlockLoader], recipe: BlockRecipe, block: int, store_dir: Any, max_bytes: int | None
) -> torch.nn.Module:
    # a config cannot be hashed, and a server has only one
    known = (recipe.torch_dtype, recipe.quant_type, recipe.devices, recipe.adapters)
    if known not in loaders:
        loaders[known] = loader_of(recipe, store_dir, max_bytes)
    loaded = loaders[known].load(block)
    seconds = loaded.read_s + loaded.quantize_s + loaded.adapter_s + loaded.to_device_s
    logger.info(f"Block {block} from {loaded.source}: {loaded.bytes_read} bytes in {seconds:.2f} s")
    return loaded.module


def _is_synthetic_folder(folder: Path) -> bool:
    file = folder / "config.json"
    return file.is_file() and is_synthetic(json.loads(file.read_text()))
