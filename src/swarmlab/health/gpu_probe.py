"""Run as a child process: computes on every GPU and prints which there are, as one JSON line."""

from __future__ import annotations

import json

import torch


def main() -> None:
    names = []
    for index in range(torch.cuda.device_count()):
        product = torch.ones(64, 64, device=f"cuda:{index}") @ torch.ones(64, 64, device=f"cuda:{index}")
        if product.sum().item() != 64.0**3:
            raise RuntimeError(f"cuda:{index} computes wrong results")
        memory_gib = torch.cuda.get_device_properties(index).total_memory / 2**30
        names.append(f"{torch.cuda.get_device_name(index)} {memory_gib:.0f} GiB")
    print(json.dumps({"torch": torch.__version__, "devices": names}))


if __name__ == "__main__":
    main()
