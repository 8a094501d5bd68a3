"""Lets a block be loaded onto a GPU while another one is recorded as a CUDA graph.

Petals records a graph at a block's first inference step. By default whatever any thread does on the GPU meanwhile, such
as allocating memory for a block that is being prefetched, spoils the recording. It need not: what counts is what the
recording thread does ("thread_local" in CUDA's terms, ``cudaStreamCaptureModeThreadLocal``).
"""

from __future__ import annotations

from typing import Any

import torch

MODE = "thread_local"


def watch_only_the_recording_thread() -> None:
    """From now on, in this process, where nobody asks for something else."""
    original: Any = torch.cuda.graph.__init__

    def init(self: Any, *args: Any, capture_error_mode: str = MODE, **options: Any) -> None:
        original(self, *args, capture_error_mode=capture_error_mode, **options)

    torch.cuda.graph.__init__ = init
