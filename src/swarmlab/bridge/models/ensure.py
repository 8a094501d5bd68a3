"""From the name or path in a config to a checkpoint that can be used."""

from __future__ import annotations

import json
import os
from pathlib import Path

from swarmlab.bridge.models.checkpoint import Checkpoint, open_checkpoint
from swarmlab.bridge.models.llama_shapes import DRAWN, PUBLISHED, check_shape
from swarmlab.bridge.models.smollm2 import FOLDER
from swarmlab.bridge.models.synthetic import synthetic
from swarmlab.bridge.models.tiny_llama import MIN_BLOCKS, tiny_llama
from swarmlab.errors import BadInput


def ensure_model(
    name_or_path: str | Path, root: str | Path, n_blocks: int | None = None, seed: int = 0, name: str = ""
) -> Checkpoint:
    """Open a model, generating it first if it can be generated. Nothing is ever fetched.

    :param name_or_path: a name of ``configs/model``, or the folder of a Hugging Face Llama checkpoint
    :param root: folder of the named models
    :param n_blocks: blocks that a generated model is to have (None: its default), or that a checkpoint must have
        (None: any)
    :param seed: of generated weights; ignored for the others
    :param name: of the model that a folder must hold, if it is a published one
    :raises BadInput: if the model is not there or not usable
    """
    if str(name_or_path) == "tiny_llama":
        return tiny_llama(root, MIN_BLOCKS if n_blocks is None else n_blocks, seed)
    if str(name_or_path) in DRAWN:
        return synthetic(root, str(name_or_path), n_blocks, seed)
    path = _folder_of(str(name_or_path), Path(root))
    if name in PUBLISHED or str(name_or_path) in PUBLISHED:
        _check_published(name if name in PUBLISHED else str(name_or_path), path)
    checkpoint = open_checkpoint(path)
    if n_blocks not in (None, checkpoint.n_blocks):
        raise BadInput("model.n_blocks", n_blocks, f"{checkpoint.n_blocks}, the number in {path}")
    return checkpoint


def _folder_of(name_or_path: str, root: Path) -> Path:
    if name_or_path == "smollm2":
        path = root / FOLDER
        if not path.is_dir():
            raise BadInput("model.name", "smollm2", f"a model that is there: run `make models` (no {path})")
        return path
    if name_or_path in PUBLISHED:
        return published_folder(name_or_path, root)
    return Path(name_or_path)


def published_folder(name: str, root: Path) -> Path:
    """Where the weights of a published model lie: under ``root``, or in the hub's cache.

    :raises BadInput: if they are in neither, with what to do; they are too large to be fetched unasked
    """
    repository = PUBLISHED[name].repository
    snapshots = hub_cache() / f"models--{repository.replace('/', '--')}" / "snapshots"
    complete = [
        root / name,
        *sorted(snapshots.glob("*"), key=lambda folder: folder.stat().st_mtime, reverse=True),
    ]
    for folder in complete:
        if (folder / "config.json").is_file():
            return folder
    allowed = (
        f"a model that is there: give its folder with model.path=DIR, link it to {root / name}, or fetch it once with "
        f"`huggingface-cli download {repository}` (130 GB; safetensors only); model=llama_65b_synthetic needs none"
    )
    raise BadInput("model.name", name, allowed)


def hub_cache() -> Path:
    """Where the hub's own tools keep what they fetched."""
    home = (
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    )
    return Path(
        os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or Path(home) / "hub"
    )


def _check_published(name: str, path: Path) -> None:
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return  # opening the checkpoint says it better
    check_shape(name, config, str(path))
