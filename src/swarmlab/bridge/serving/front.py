"""What requests pass through: the same processes and queues for all blocks of a model, whichever of them are held.

Petals forks its handlers anew for each set of blocks, since they hold copies of the blocks' queues, and a server is
away meanwhile. Here three queues serve all blocks, each task names its block, and one small table in shared memory
says which blocks are held. Handlers are forked once, before any weights are loaded (so they keep no copy of them),
and a server changes its blocks while they run: blocks that it keeps are never out of service, nor their sessions.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import init_empty_weights
from hivemind import BatchTensorDescriptor
from petals.data_structures import UID_DELIMITER
from petals.server.backend import TransformerBackend, _MergedInferenceStep
from petals.server.memory_cache import MemoryCache
from petals.server.task_pool import PrioritizedTaskPool
from petals.utils.convert_block import make_tensor_parallel

from swarmlab.bridge.serving import heap
from swarmlab.bridge.serving.presence import Presence
from swarmlab.errors import BadInput

MAX_REQUEST_TOKENS = 2048  # petals' own size of a block's inputs in its schemas


class PoolOfBlock:
    """The queue that all blocks share, as the handlers see it for one of them."""

    def __init__(self, pool: PrioritizedTaskPool, uid: str) -> None:
        self._pool, self._uid = pool, uid

    def submit_task(self, *args: Any, priority: float = 0.0) -> Any:
        """As petals' pool, with the block's name as the last argument."""
        return self._pool.submit_task(*args, self._uid, priority=priority)


class HeldBlocks:
    """The blocks that can compute, by uid; only in the server's own process. Safe from any thread.

    :param template: what petals knows of a block beside its weights
    """

    def __init__(self, template: TransformerBackend) -> None:
        self._template: Any = template
        self._backends: dict[str, TransformerBackend] = {}
        self.inference = _MergedInferenceStep(self._backends)

    def add(self, uid: str, module: torch.nn.Module) -> None:
        backend = copy.copy(self._template)
        backend.name, backend.module = uid, module
        self._backends[uid] = backend

    def remove(self, uid: str) -> None:
        """Forget a block; a task that computes on it right now finishes."""
        del self._backends[uid]

    def clear(self) -> None:
        self._backends.clear()

    def free_copies(self) -> None:
        """In a process that was forked from the server's: let go of the weights that it shares with it.

        What lies on a GPU is not shared, and CUDA cannot be used here.
        """
        if any(device.type != "cpu" for device in self._template.module.devices):
            return
        for backend in self._backends.values():
            for tensor in (*backend.module.parameters(), *backend.module.buffers()):
                tensor.data = torch.empty(0)
        self.clear()
        heap.trim()

    def module(self, uid: str) -> torch.nn.Module:
        return self._backends[uid].module

    def forward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """:raises KeyError: if the block named last is not held"""
        *inputs, uid = args
        return self._backends[uid].forward(*inputs)

    def backward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """:raises KeyError: if the block named last is not held"""
        *inputs, uid = args
        return self._backends[uid].backward(*inputs)


class Front:
    """Template, queues, and a face for each block of the model.

    :param server: petals' ``Server``, for its settings
    """

    def __init__(self, server: Any) -> None:
        self.memory_cache = MemoryCache(server.attn_cache_bytes, server.max_alloc_timeout)
        self.presence = Presence(server.block_config.num_hidden_layers)
        self.template: Any = _template(server, self.memory_cache)
        self.held = HeldBlocks(self.template)
        device, size = self.template.inference_pool.device, self.template.inference_pool.max_batch_size

        def pool(process: Any, name: str) -> PrioritizedTaskPool:
            return PrioritizedTaskPool(process, max_batch_size=size, device=device, name=name)

        self.template.inference_pool = pool(self.held.inference, "inference")
        self.template.forward_pool = pool(self.held.forward, "forward")
        self.template.backward_pool = pool(self.held.backward, "backward")
        self.faces = {uid: self._face(uid) for uid in server.module_uids}

    def forget(self) -> None:
        """Keep no block and no attention cache; what is computed right now finishes or fails."""
        self.held.clear()
        self.memory_cache._allocated_tensors.clear()

    def _face(self, uid: str) -> TransformerBackend:
        face = copy.copy(self.template)
        face.name = uid
        face.forward_pool = PoolOfBlock(self.template.forward_pool, uid)
        face.backward_pool = PoolOfBlock(self.template.backward_pool, uid)
        return face


def _template(server: Any, memory_cache: MemoryCache) -> TransformerBackend:
    """A backend of petals without weights, from whose attributes those of all blocks follow.

    :raises BadInput: for a model whose blocks cannot be cut for several devices
    """
    config, devices = server.block_config, server.tensor_parallel_devices
    if len(devices) == 1:
        with init_empty_weights():
            block = config.block_class(config)
    else:
        block = config.block_class(config)  # weights that are to be cut must exist; they are freed again here
    try:
        module = make_tensor_parallel(
            block.requires_grad_(False), config, devices, output_device=server.device
        )
    except AssertionError:
        allowed = f"one device: petals cannot cut blocks of {config.model_type} for several"
        raise BadInput("--tensor_parallel_devices", " ".join(map(str, devices)), allowed) from None
    schema = (
        BatchTensorDescriptor(
            1,
            MAX_REQUEST_TOKENS,
            config.hidden_size,
            dtype=server.torch_dtype,
            compression=server.compression,
        ),
    )
    template = TransformerBackend(
        f"{server.dht_prefix}{UID_DELIMITER}0",
        module,
        config=config,
        memory_cache=memory_cache,
        backend_dtype=server.torch_dtype,
        max_chunk_size_bytes=server.max_chunk_size_bytes,
        args_schema=schema,
        kwargs_schema={},
        outputs_schema=schema,
        min_batch_size=server.min_batch_size,
        max_batch_size=server.max_batch_size,
    )
    template.module = SimpleNamespace(devices=module.devices)
    return template
