"""What a block or an adapter holds, as one hash of the files it would be loaded from.

``compat.apply()`` must have been called before this module is imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from petals.server import from_pretrained
from transformers.utils import get_file_from_repo

from swarmlab.bridge.blocks.loader import BlockRecipe
from swarmlab.bridge.models.file_hash import known_sha256


class NotOnDisk(Exception):
    """The files are not on this machine, so nobody can say what they hold."""


def content_of_block(recipe: BlockRecipe, block: int) -> str:
    """Hash of the contents of every file that the block's tensors are read from.

    :raises NotOnDisk: if one is missing
    """
    prefix = f"{recipe.config.block_prefix}.{block}."
    return _content(_weight_files(recipe, prefix))


def content_of_adapter(recipe: BlockRecipe, adapter: str) -> str:
    """Hash of an adapter's config and weights.

    :raises NotOnDisk: if one of them is missing
    """
    from petals.utils import peft

    names = (peft.CONFIG_NAME, peft.SAFETENSORS_WEIGHTS_NAME)
    return _content([_local_file(recipe, adapter, name) for name in names])


def revision_of(recipe: BlockRecipe) -> str:
    """The commit of a repository of the hub, as far as it is known; empty for any other folder."""
    # the hub's cache: .../snapshots/COMMIT/config.json
    folder = _local_file(recipe, recipe.model_path, "config.json").parent
    return folder.name if folder.parent.name == "snapshots" else str(recipe.revision or "")


def _weight_files(recipe: BlockRecipe, prefix: str) -> list[Path]:
    for name in from_pretrained.INDEX_FILES:  # in the order in which petals looks for them
        try:
            file = _local_file(recipe, recipe.model_path, name)
        except NotOnDisk:
            continue
        if not name.endswith(".index.json"):
            return [file]
        weight_map: dict[str, str] = json.loads(file.read_text())["weight_map"]
        shards = sorted({shard for tensor, shard in weight_map.items() if tensor.startswith(prefix)})
        return [_local_file(recipe, recipe.model_path, shard) for shard in shards]
    raise NotOnDisk(f"{recipe.model_path} has no weights on this machine")


def _local_file(recipe: BlockRecipe, repository: str, name: str) -> Path:
    cache_dir = recipe.cache_dir or from_pretrained.DEFAULT_CACHE_DIR
    try:
        found = get_file_from_repo(
            repository,
            name,
            revision=recipe.revision if repository == recipe.model_path else None,
            cache_dir=cache_dir,
            local_files_only=True,
        )
    except OSError as error:
        raise NotOnDisk(f"{repository}: {error}") from None
    if found is None or not Path(found).is_file():
        raise NotOnDisk(f"{repository} has no {name} on this machine")
    return Path(found)


def _content(files: Sequence[Path]) -> str:
    return hashlib.sha256("".join(known_sha256(file) for file in files).encode()).hexdigest()
