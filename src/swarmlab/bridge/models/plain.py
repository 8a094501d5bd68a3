"""The reference: greedy generation by the plain transformers model on this machine, without a swarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from swarmlab.bridge.models.checkpoint import WEIGHTS, Checkpoint
from swarmlab.bridge.models.synthetic import block_tensors, is_synthetic
from swarmlab.errors import BadInput

SMALL_HIDDEN = 256

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def load_plain(checkpoint: Checkpoint, quant: str = "none") -> LlamaForCausalLM:
    """The whole model in float32 on the CPU, without gradients.

    :param quant: ``none``, ``int8`` or ``nf4``: of the blocks' linear layers, as petals' servers quantize theirs
    """
    # Imported late: processes that only look at a checkpoint need no torch.
    import torch
    from transformers import LlamaForCausalLM

    if is_synthetic(checkpoint.config):
        return _drawn(checkpoint, quant)
    model: Any = LlamaForCausalLM.from_pretrained(
        str(checkpoint.path), torch_dtype=torch.float32, low_cpu_mem_usage=True, local_files_only=True
    )
    model.eval().requires_grad_(False)
    quantize(model.model.layers, quant)
    return model


def shell(checkpoint: Checkpoint) -> Any:
    """The transformers model of a synthetic checkpoint without its blocks' weights: embeddings, last norm, head."""
    from accelerate import init_empty_weights
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM

    with init_empty_weights():
        model: Any = LlamaForCausalLM(LlamaConfig.from_pretrained(str(checkpoint.path)))
    weights = load_file(checkpoint.path / WEIGHTS)
    model.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False, assign=True)
    return model.eval().requires_grad_(False)


def drawn_layer(layer: Any, drawn: Mapping[str, npt.NDArray[np.float16]]) -> Any:
    """The block with its weights, in float32."""
    import torch

    layer.load_state_dict(
        {name: torch.from_numpy(values).float() for name, values in drawn.items()}, assign=True
    )
    return layer.requires_grad_(False)


def _drawn(checkpoint: Checkpoint, quant: str) -> Any:
    """The transformers model of a synthetic checkpoint; a quantized one never holds two blocks in float32."""
    model = shell(checkpoint)
    for block, layer in enumerate(model.model.layers):
        quantize(drawn_layer(layer, block_tensors(checkpoint.config, block)), quant)
    missing = [name for name, tensor in model.state_dict().items() if tensor.is_meta]
    if missing:
        raise ValueError(f"{checkpoint.path} has no {missing[0]}")
    return model.requires_grad_(False)


def quantize(blocks: Any, quant: str, device: str = "cpu") -> Any:
    """In place; in training mode, as servers of petals run: else bitsandbytes computes in bfloat16 on some CPUs."""
    if quant == "none":
        return blocks.to(device)
    from petals.utils.convert_block import QuantType, quantize_module

    return quantize_module(blocks, quant_type=QuantType[quant.upper()]).to(device).train()


def plain_run(
    checkpoint: Checkpoint, prompt_ids: npt.NDArray[np.int64], new_tokens: int, quant: str = "none"
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Feed a prompt, then one greedy token at a time, with an attention cache; no token ends the generation.

    :param prompt_ids: ``[batch, tokens]``
    :param new_tokens: tokens to generate per row
    :param quant: as in :func:`load_plain`
    :returns: token ids ``[batch, new_tokens]``, and the output of the last block (before the final norm) for
        every position that was fed, ``[batch, tokens + new_tokens - 1, hidden]``
    :raises BadInput: if there is nothing to do or the model cannot hold so many tokens
    """
    check_sizes(checkpoint, prompt_ids, new_tokens)
    import torch

    model: Any = load_plain(checkpoint, quant)
    hidden: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _norm, inputs: hidden.append(inputs[0]))
    fed, cache, tokens = torch.from_numpy(prompt_ids), None, []
    with torch.inference_mode(), threads(_threads_for(checkpoint)):
        for _ in range(new_tokens):
            output = model(fed, past_key_values=cache, use_cache=True)
            fed, cache = output.logits[:, -1:].argmax(dim=-1), output.past_key_values
            tokens.append(fed)
        return torch.cat(tokens, dim=1).numpy(), torch.cat(hidden, dim=1).numpy()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _threads_for(checkpoint: Checkpoint) -> int:
    # Threads that share out a small product wait for each other longer than they compute: on a busy machine the
    # tiny model takes 30 times as long on two as on one.
    import torch

    return 1 if checkpoint.hidden_size <= SMALL_HIDDEN else torch.get_num_threads()


def check_sizes(checkpoint: Checkpoint, prompt_ids: npt.NDArray[np.int64], new_tokens: int) -> None:
    if prompt_ids.ndim != 2 or 0 in prompt_ids.shape:
        raise BadInput("workload.prompt", prompt_ids.shape, "at least one row of at least one token")
    if prompt_ids.min() < 0 or prompt_ids.max() >= checkpoint.vocab_size:
        allowed = f"token ids 0 to {checkpoint.vocab_size - 1}"
        raise BadInput("workload.prompt", [int(prompt_ids.min()), int(prompt_ids.max())], allowed)
    longest = checkpoint.max_tokens - prompt_ids.shape[1]
    if not 1 <= new_tokens <= longest:
        raise BadInput("workload.new_tokens", new_tokens, f"1 to {longest} after this prompt")
