"""How much memory a server has for blocks beside those it holds."""

from __future__ import annotations

from typing import Any

import psutil
import torch

from swarmlab.bridge.container import BlockContainer
from swarmlab.health.machine import container_memory
from swarmlab.placement.reload_plan import MemoryPlan, memory_plan
from swarmlab.types import Span

# Left alone: for activations and whatever else the machine does.
RESERVE_SHARE, MIN_RESERVE_BYTES = 0.05, 256 * 2**20


def plan_memory(server: Any, wish: str, container: BlockContainer, old: Span, new: Span) -> MemoryPlan:
    """
    :param server: petals' ``Server``
    :param wish: ``prefetch``, ``in_place`` or ``auto``
    """
    modules = container.modules()
    block_bytes = max((bytes_of(module) for module in modules.values()), default=0)
    raw_bytes = raw_block_bytes(container)
    on_cpu = server.device.type == "cpu"
    cache = container.front.memory_cache
    free = free_bytes(server.device) - cache.bytes_left
    return memory_plan(
        wish,
        n_new=new.length - old.overlap(new),
        block_bytes=block_bytes,
        raw_block_bytes=raw_bytes if on_cpu else 0,
        free_bytes=max(0, free),
    )


def free_bytes(device: torch.device) -> int:
    """Memory of the device that nobody uses, less a reserve; of a container no more than its limit leaves.

    A process beyond that limit is killed: no error comes in time for a way back.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # what torch holds for itself is free for us
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    else:
        memory, container = psutil.virtual_memory(), container_memory()
        free, total = memory.available, memory.total
        if container is not None:
            free, total = min(free, container.free_bytes), min(total, container.limit_bytes)
    return int(free - max(RESERVE_SHARE * total, MIN_RESERVE_BYTES))


def bytes_of(module: torch.nn.Module) -> int:
    """Of its parameters and buffers, as they are held; quantization states are small beside them."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def raw_block_bytes(container: BlockContainer) -> int:
    """One block before it is quantized."""
    config, dtype = container.front.template.config, container.front.template.dtype
    with torch.device("meta"):
        block = config.block_class(config)
    return sum(parameter.numel() for parameter in block.parameters()) * dtype.itemsize
