"""What loading blocks takes on a device: ``python -m swarmlab.bridge.blocks.timing MODEL_FOLDER --store DIR``.

Prints JSON lines: for each block one of the first load (drawn or read, quantized, to the device) and one of a second
from the store; then what one block computes, by petals' own measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402 - after apply
from petals.server.throughput import measure_compute_rps  # noqa: E402
from petals.utils.auto_config import AutoDistributedConfig  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.blocks.loader import BlockRecipe  # noqa: E402
from swarmlab.bridge.blocks.source import loader_of  # noqa: E402

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def recipe_of(folder: Path, quant: str, dtype: str, device: str) -> BlockRecipe:
    config: Any = AutoDistributedConfig.from_pretrained(str(folder))
    devices = (torch.device(device),)
    return BlockRecipe(str(folder), config, DTYPES[dtype], QuantType[quant.upper()], devices=devices)


def timed_loads(recipe: BlockRecipe, blocks: Sequence[int], store: Path) -> Iterator[dict[str, Any]]:
    """Every block twice; what a block leaves on the device is freed before the next."""
    loader = loader_of(recipe, store)
    for attempt in ("first", "again"):
        for block in blocks:
            before_bytes = device_bytes(recipe.device)
            loaded = loader.load(block)
            yield {
                "block": block,
                "attempt": attempt,
                "source": loaded.source,
                "bytes_read": loaded.bytes_read,
                "read_s": round(loaded.read_s, 4),
                "quantize_s": round(loaded.quantize_s, 4),
                "to_device_s": round(loaded.to_device_s, 4),
                "device_bytes": device_bytes(recipe.device) - before_bytes,
            }
            del loaded


def device_bytes(device: torch.device) -> int:
    """Memory that torch holds on a GPU; 0 on a CPU, where nobody counts it."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def speed(recipe: BlockRecipe, n_tokens: int, n_steps: int, *, inference: bool) -> float:
    """Tokens per second through one block."""
    options = {"quant_type": recipe.quant_type, "tensor_parallel_devices": (), "inference": inference}
    return measure_compute_rps(
        recipe.config, recipe.device, recipe.torch_dtype, n_tokens=n_tokens, n_steps=n_steps, **options
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a checkpoint folder")
    parser.add_argument(
        "--store", type=Path, required=True, help="folder of the block store, filled on the way"
    )
    parser.add_argument("--blocks", type=int, default=4, help="how many of the first blocks")
    parser.add_argument("--quant", choices=("none", "int8", "nf4"), default="nf4")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float16")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args(argv)
    recipe = recipe_of(given.model.absolute(), given.quant, given.dtype, given.device)
    for row in timed_loads(recipe, range(given.blocks), given.store.absolute()):
        print(json.dumps(row), flush=True)
    speeds = {
        "inference_tps": speed(recipe, 1, 50, inference=True),
        "forward_tps": speed(recipe, 128, 4, inference=False),
    }
    print(json.dumps({"speed": {name: round(value, 1) for name, value in speeds.items()}}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
