"""A damaged file of a checkpoint in a folder is an error at once.

Petals takes it for a spoilt download and tries to fetch it from a hub, again and again for ever; for a folder there
is no hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from petals.server import from_pretrained


def fail_at_once() -> None:
    """From now on, in this process."""
    original: Any = from_pretrained._load_state_dict_from_repo_file

    def read(
        model_name: str, filename: str, *, block_prefix: str | None = None, **options: Any
    ) -> dict[str, Any]:
        if not Path(model_name).is_dir():
            return original(model_name, filename, block_prefix=block_prefix, **options)
        return from_pretrained._load_state_dict_from_local_file(
            str(Path(model_name, filename)), block_prefix=block_prefix
        )

    from_pretrained._load_state_dict_from_repo_file = read
