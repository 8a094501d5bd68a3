"""A server's settings without a server, for what takes petals' ``Server`` only to read from it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from petals.utils.auto_config import AutoDistributedConfig
from petals.utils.convert_block import QuantType

CPU = torch.device("cpu")


def settings_of(model_path: Path, devices: tuple[torch.device, ...] = (CPU,)) -> Any:
    """Of a float32 server of the tiny model, prefix ``m``; import after ``compat.apply()``."""
    pb: Any = __import__("hivemind.proto.runtime_pb2", fromlist=["CompressionType"])
    config: Any = AutoDistributedConfig.from_pretrained(str(model_path))
    return SimpleNamespace(
        block_config=config, dht_prefix="m", module_uids=[f"m.{block}" for block in range(16)],
        torch_dtype=torch.float32, tensor_parallel_devices=devices, device=CPU, attn_cache_bytes=2**20,
        max_alloc_timeout=1.0, max_chunk_size_bytes=2**20, min_batch_size=1, max_batch_size=512,
        compression=pb.CompressionType.NONE, dht=None, num_handlers=2, inference_max_length=64,
        request_timeout=1.0, session_timeout=1.0, step_timeout=1.0, quant_type=QuantType.NONE,
        prefetch_batches=1, sender_threads=1, stats_report_interval=None,
        server_info=SimpleNamespace(adapters=()),
    )  # fmt: skip
