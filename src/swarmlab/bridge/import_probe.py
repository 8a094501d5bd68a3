"""Run as a child process: imports every package a run needs, and prints which failed as one JSON line."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable

from swarmlab.bridge import compat

ANYWHERE = ("numpy", "pandas", "pyarrow", "scipy", "matplotlib", "simpy", "hydra", "psutil", "torch")
AFTER_COMPAT = ("hivemind", "transformers", "bitsandbytes", "petals", "petals.cli.run_server")


def main() -> None:
    start_s = time.monotonic()
    failed: dict[str, str] = {}
    for name in ANYWHERE:
        _try(importlib.import_module, name, failed)
    _try(lambda _: compat.apply(), "swarmlab.bridge.compat", failed)
    for name in AFTER_COMPAT:
        _try(importlib.import_module, name, failed)
    imported = [name for name in ANYWHERE + AFTER_COMPAT if name not in failed and "." not in name]
    print(json.dumps({"imported": imported, "failed": failed, "seconds": time.monotonic() - start_s}))


def _try(step: Callable[[str], object], name: str, failed: dict[str, str]) -> None:
    try:
        step(name)
    except Exception as error:  # noqa: BLE001 - whatever an import raises is the finding
        failed[name] = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
