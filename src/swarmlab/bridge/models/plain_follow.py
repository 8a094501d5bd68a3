"""What plain transformers makes of a text that is there already, for models too large to generate with.

Each block is loaded once, applied to the whole text, and let go, so that one block's memory will do, and a GPU is free
again after seconds. The tokens are those of greedy generation after each prefix of the text: all of them equal the
text exactly if greedy generation by transformers alone would have made it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmlab.bridge.models.checkpoint import Checkpoint
from swarmlab.bridge.models.plain import check_sizes, drawn_layer, load_plain, quantize, shell, threads
from swarmlab.bridge.models.synthetic import block_tensors, is_synthetic

DRAWN_AHEAD = 6  # blocks in float16 that wait in memory, drawn by as many threads


def plain_follow(
    checkpoint: Checkpoint,
    prompt_ids: npt.NDArray[np.int64],
    given_ids: npt.NDArray[np.int64],
    quant: str = "none",
    device: str = "cpu",
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """As ``plain_run``, after the tokens that somebody else has generated.

    :param prompt_ids: ``[batch, tokens]``
    :param given_ids: ``[batch, new_tokens]``; the last is compared with, and not fed
    :param device: that computes; the CPU where there is no GPU
    :returns: token ids ``[batch, new_tokens]``; outputs of the last block ``[batch, tokens + new_tokens - 1, hidden]``
    :raises BadInput: if there is nothing to do or the model cannot hold so many tokens
    """
    check_sizes(checkpoint, prompt_ids, given_ids.shape[1])
    import torch

    where = device if torch.cuda.is_available() else "cpu"
    text = torch.from_numpy(np.concatenate([prompt_ids, given_ids[:, :-1]], axis=1))
    model: Any = shell(checkpoint) if is_synthetic(checkpoint.config) else load_plain(checkpoint)
    # nothing else of the run computes meanwhile
    with torch.inference_mode(), threads(len(os.sched_getaffinity(0))):
        hidden = model.model.embed_tokens(text)
        size, positions = tuple(text.shape), torch.arange(text.shape[1], device=where)[None]
        mask = model.model._prepare_decoder_attention_mask(
            torch.ones(size, dtype=torch.bool), size, hidden, 0
        )
        hidden, mask = hidden.to(where), mask.to(where)
        for layer in _layers(checkpoint, model, quant, where):
            hidden = layer(hidden, attention_mask=mask, position_ids=positions)[0]
            del layer
        hidden = hidden.to("cpu")
        logits = model.lm_head(model.model.norm(hidden[:, prompt_ids.shape[1] - 1 :]))
    return logits.argmax(dim=-1).numpy(), hidden.numpy()


def _layers(checkpoint: Checkpoint, model: Any, quant: str, device: str) -> Iterator[Any]:
    """The blocks one after the other on the device; one is in memory if each is let go before the next is asked for."""
    layers, config = list(model.model.layers), checkpoint.config
    del model.model.layers
    if not is_synthetic(config):
        while layers:
            yield quantize(layers.pop(0), quant, device)
        return
    with ThreadPoolExecutor(DRAWN_AHEAD) as pool:
        coming: deque[Any] = deque()
        for block in range(n_blocks := len(layers)):
            while len(coming) < DRAWN_AHEAD and block + len(coming) < n_blocks:
                coming.append(pool.submit(block_tensors, config, block + len(coming)))
            yield quantize(drawn_layer(layers.pop(0), coming.popleft().result()), quant, device)
