"""From the name or path in a config to a checkpoint that can be used."""

from __future__ import annotations

from pathlib import Path

from swarmlab.bridge.models.checkpoint import Checkpoint, open_checkpoint
from swarmlab.bridge.models.smollm2 import FOLDER
from swarmlab.bridge.models.tiny_llama import MIN_BLOCKS, tiny_llama
from swarmlab.errors import BadInput


def ensure_model(
    name_or_path: str | Path, root: str | Path, n_blocks: int | None = None, seed: int = 0
) -> Checkpoint:
    """Open a model, generating it first if it can be generated.

    :param name_or_path: ``tiny_llama``, ``smollm2``, or the folder of a Hugging Face Llama checkpoint
    :param root: folder of the named models
    :param n_blocks: blocks that tiny_llama is to have (None: 16), or that a checkpoint must have (None: any)
    :param seed: of tiny_llama's weights; ignored for the others
    :raises BadInput: if the model is not there or not usable
    """
    if str(name_or_path) == "tiny_llama":
        return tiny_llama(root, MIN_BLOCKS if n_blocks is None else n_blocks, seed)
    if str(name_or_path) == "smollm2":
        path = Path(root) / FOLDER
        if not path.is_dir():
            raise BadInput("model.name", "smollm2", f"a model that is there: run `make models` (no {path})")
    else:
        path = Path(name_or_path)
    checkpoint = open_checkpoint(path)
    if n_blocks not in (None, checkpoint.n_blocks):
        raise BadInput("model.n_blocks", n_blocks, f"{checkpoint.n_blocks}, the number in {path}")
    return checkpoint
