# ruff: noqa: INP001 (scripts, not a package)
"""Blocks from the store beside reading a checkpoint and quantizing: ``python benchmarks/bench_block_store.py``.

Both files are in the page cache, so that what is compared is work, not the disk; the bytes say what a disk would add.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402 (after apply)
from petals.utils.auto_config import AutoDistributedConfig  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.block_store import BlockStore  # noqa: E402
from swarmlab.bridge.blocks.loader import BlockRecipe, LoadedBlock, PetalsLoader  # noqa: E402
from swarmlab.bridge.blocks.store_loader import StoreLoader  # noqa: E402
from swarmlab.bridge.models.checkpoint import expected_tensors  # noqa: E402
from swarmlab.bridge.models.llama_shapes import LLAMA_65B, llama_config  # noqa: E402

ROUNDS = 5  # the fastest of so many is reported: the machine's other work only ever adds time
SHARE = 4  # the 65B's block at a quarter of its width, 1/16 of its weights
BLOCK = 0
GOAL_BYTES, GOAL_SECONDS = 3.5, 2.0
COLUMNS = (
    "checkpoint",
    "kept as",
    "checkpoint, MiB",
    "store, MiB",
    "bytes, ratio",
    "read, s",
    "quantize, s",
    "store: read and check, s",
    "to device, s",
    "seconds, ratio",
)


@dataclass(frozen=True)
class Row:
    """One way of keeping a block, beside a checkpoint in one dtype."""

    stored_as: str
    quant: str
    checkpoint: LoadedBlock
    store: LoadedBlock

    @property
    def ratio_bytes(self) -> float:
        return self.checkpoint.bytes_read / self.store.bytes_read

    @property
    def ratio_seconds(self) -> float:
        return seconds(self.checkpoint) / seconds(self.store)

    def line(self) -> str:
        one, other = self.checkpoint, self.store
        cells = [
            self.stored_as,
            self.quant,
            f"{one.bytes_read / 2**20:.1f}",
            f"{other.bytes_read / 2**20:.1f}",
            f"{self.ratio_bytes:.2f}",
            f"{one.read_s:.3f}",
            f"{one.quantize_s:.3f}",
            f"{other.read_s:.3f}",
            f"{other.to_device_s:.3f}",
            f"{self.ratio_seconds:.1f}",
        ]
        return f"| {' | '.join(cells)} |"


def seconds(block: LoadedBlock) -> float:
    return block.read_s + block.quantize_s + block.to_device_s


def checkpoint_folder(folder: Path, dtype: str) -> Path:
    """A checkpoint of one block with normally distributed weights."""
    shape = replace(
        LLAMA_65B,
        n_blocks=1,
        hidden_size=LLAMA_65B.hidden_size // SHARE,
        intermediate_size=LLAMA_65B.intermediate_size // SHARE,
        heads=LLAMA_65B.heads // SHARE,
        kv_heads=LLAMA_65B.kv_heads // SHARE,
        vocab_size=256,
    )
    config = llama_config(shape, dtype)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    tensors = {
        name: (rng.standard_normal(size, dtype=np.float32) * 0.02).astype(dtype)
        for name, size in expected_tensors(config).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def fastest(loaders: list[Any]) -> list[LoadedBlock]:
    """The fastest load of each; they take turns, so that the machine's other work meets all of them."""
    rounds = [[loader.load(BLOCK) for loader in loaders] for _ in range(ROUNDS)]
    return [min(loads, key=seconds) for loads in zip(*rounds, strict=True)]


def rows(folder: Path, device: str) -> Iterator[Row]:
    """Every quantization beside a float16 and a float32 checkpoint."""
    compute = torch.float16 if device.startswith("cuda") else torch.bfloat16  # float16 needs a GPU
    for dtype in ("float16", "float32"):
        path = checkpoint_folder(folder / dtype, dtype)
        config: Any = AutoDistributedConfig.from_pretrained(str(path))
        for quant in (QuantType.NF4, QuantType.INT8, QuantType.NONE):
            recipe = BlockRecipe(str(path), config, compute, quant, devices=(torch.device(device),))
            store = BlockStore(folder / f"store-{dtype}-{quant.name}")
            loader = StoreLoader(recipe, store, PetalsLoader(recipe))
            loader.load(BLOCK)
            fresh, warm = fastest([PetalsLoader(recipe), loader])
            assert warm.source == "store"
            yield Row(dtype, quant.name.lower(), fresh, warm)


def report(found: list[Row], device: str) -> tuple[list[str], bool]:
    """The comparison as Markdown, and whether the goals are met for nf4 beside float16."""
    goal = next(row for row in found if (row.stored_as, row.quant) == ("float16", "nf4"))
    met = goal.ratio_bytes >= GOAL_BYTES and goal.ratio_seconds >= GOAL_SECONDS
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    size = f"hidden {LLAMA_65B.hidden_size // SHARE}, intermediate {LLAMA_65B.intermediate_size // SHARE}"
    about = (
        f"Llama block of a quarter of the 65B's width ({size}), loaded to: {where}, {os.cpu_count()} cores "
        f"({platform.machine()}), torch {torch.__version__}, load average {os.getloadavg()[0]:.0f}. Files in "
        f"the page cache; fastest of {ROUNDS}; MiB and seconds per block. "
        "Made by `python benchmarks/bench_block_store.py`."
    )
    verdict = (
        f"nf4 beside float16: {goal.ratio_bytes:.2f} times fewer bytes (goal {GOAL_BYTES:g}), "
        f"{goal.ratio_seconds:.1f} times faster (goal {GOAL_SECONDS:g}): {'met' if met else 'NOT met'}."
    )
    head = f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"
    lines = [row.line() for row in found]
    return ["# One block from the store, beside a checkpoint", "", about, "", *head, *lines, "", verdict], met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--out", type=Path, help="also write the table to this Markdown file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarmlab-bench-") as folder:
        lines, met = report(list(rows(Path(folder), arguments.device)), arguments.device)
    sys.stdout.write("\n".join(lines) + "\n")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
