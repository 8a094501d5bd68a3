"""Puts blocks into a block store before a swarm needs them: ``python -m swarmlab.bridge.fill_store MODEL --store DIR``.

Prints what each block took. What is there already is read and checked only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarmlab.bridge import compat
from swarmlab.bridge.models import ensure_model
from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.health.capacity import ITEM_BYTES, QUANTS
from swarmlab.types import Span

EXIT_NOT_KEPT = 1
COLUMNS = ("block", "from", "MiB read", "read, s", "quantize, s", "to device, s", "store, s")


class NotKept(Exception):
    """The store has no room for all of the blocks."""


def fill(
    model_path: Path, store_dir: Path, span: Span, quant: str, dtype: str, device: str, max_bytes: int | None
) -> Iterator[Any]:
    """Load each block of the span through the store, one at a time.

    :returns: a LoadedBlock for each, as soon as it is there
    :raises BadInput: for a span that the model does not have
    :raises NotKept: at the end, if the store does not have them all
    """
    import torch
    from petals.utils.auto_config import AutoDistributedConfig
    from petals.utils.convert_block import QuantType

    from swarmlab.bridge.blocks.loader import BlockRecipe
    from swarmlab.bridge.blocks.source import loader_of
    from swarmlab.bridge.blocks.store_loader import StoreLoader

    config: Any = AutoDistributedConfig.from_pretrained(str(model_path))
    if span.end > config.num_hidden_layers:
        raise BadInput("--blocks", str(span), f"blocks within [0, {config.num_hidden_layers})")
    devices = (torch.device(device),)
    recipe = BlockRecipe(
        str(model_path), config, getattr(torch, dtype), QuantType[quant.upper()], devices=devices
    )
    loader = loader_of(recipe, store_dir, max_bytes)
    for block in span:
        yield loader.load(block)
    lost = [block for block in span if not (isinstance(loader, StoreLoader) and loader.keeps(block))]
    if lost:
        raise NotKept(
            f"{len(lost)} of {span.length} blocks are not in {store_dir}: {', '.join(map(str, lost))}"
        )


def main(argv: list[str] | None = None) -> int:
    """0; 1 if the store did not keep all of them; 2 for bad input."""
    parser = Arguments(
        prog="python -m swarmlab.bridge.fill_store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a name of configs/model, or a checkpoint's folder")
    parser.add_argument("--store", type=Path, required=True, help="folder of the block store")
    parser.add_argument("--blocks", help="START:END (default: all)")
    parser.add_argument("--quant", choices=QUANTS, default="nf4")
    parser.add_argument("--torch-dtype", choices=sorted(ITEM_BYTES), default="float16")
    parser.add_argument(
        "--device", default="cpu", help="what quantizes: cpu, cuda or cuda:N; each makes its own"
    )
    parser.add_argument("--max-bytes", type=int, help="of the store; the least recently used blocks go first")
    parser.add_argument("--models-dir", type=Path, default=Path("models"), help="folder of the named models")
    parser.add_argument("--n-blocks", type=int, help="blocks of a generated model")
    parser.add_argument("--seed", type=int, default=0, help="seed of a generated model")
    args = parser.parse_args(argv)
    compat.apply()
    try:
        checkpoint = ensure_model(args.model, args.models_dir, args.n_blocks, args.seed)
        span = _span(args.blocks) if args.blocks else Span(0, checkpoint.n_blocks)
        print(" ".join(f"{name:>12}" for name in COLUMNS))
        loaded = fill(
            checkpoint.path, args.store, span, args.quant, args.torch_dtype, args.device, args.max_bytes
        )
        for block, one in zip(span, loaded, strict=True):
            seconds = (one.read_s, one.quantize_s, one.to_device_s, one.store_s)
            amounts = (f"{one.bytes_read / 2**20:.1f}", *(f"{part:.3f}" for part in seconds))
            print(" ".join(f"{cell:>12}" for cell in (str(block), one.source, *amounts)), flush=True)
    except BadInput as error:
        return refuse(error)
    except NotKept as error:
        print(f"{error}; is the disk full, or --max-bytes too small?", file=sys.stderr)
        return EXIT_NOT_KEPT
    return 0


def _span(text: str) -> Span:
    start, _, end = text.partition(":")
    if not (start.isdigit() and end.isdigit() and int(start) < int(end)):
        raise BadInput("--blocks", text, "START:END, as in 0:20")
    return Span(int(start), int(end))


if __name__ == "__main__":
    sys.exit(main())
