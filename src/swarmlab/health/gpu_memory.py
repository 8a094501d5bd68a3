"""Memory of each GPU that torch sees, as one line of JSON: ``python -m swarmlab.health.gpu_memory``."""

from __future__ import annotations

import json
import sys


def main() -> int:
    import torch  # noqa: PLC0415  seconds, and it may hang on a broken driver: run by health.probe

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    totals = [torch.cuda.get_device_properties(index).total_memory for index in range(count)]
    sys.stdout.write(json.dumps({"total_bytes": totals}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
