"""Watches how this process reads blocks from a checkpoint, and slows it down where an experiment wants a slow disk.

Petals' code path stays its own: only its function that reads one block's tensors is wrapped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Read:
    """One block's tensors as they came from a checkpoint.

    :param prefix: of their names, such as ``model.layers.3.``
    :param n_bytes: in the checkpoint's own dtype
    :param read_s: until all bytes were in memory, an artificial delay included
    """

    prefix: str
    n_bytes: int
    read_s: float


class _Disk:
    """What every read of this process passes."""

    delay_s = 0.0
    watched = False


_reads: ContextVar[list[Read] | None] = ContextVar("_reads", default=None)


def install(delay_s: float) -> None:
    """Make each later read of a block, from a checkpoint or from a block store, that much slower in this process.

    May be called again with another delay.

    :raises ValueError: if the delay is negative
    """
    if not 0 <= delay_s < float("inf"):
        raise ValueError(f"a delay of {delay_s} s")
    _Disk.delay_s = delay_s
    _watch()


def pause() -> None:
    """The delay of one read; for readers other than petals' own."""
    if _Disk.delay_s:
        time.sleep(_Disk.delay_s)


@contextmanager
def watched_reads() -> Iterator[list[Read]]:
    """Collects what this thread reads from checkpoints through petals inside the ``with`` block."""
    _watch()
    reads: list[Read] = []
    token = _reads.set(reads)
    try:
        yield reads
    finally:
        _reads.reset(token)


def _watch() -> None:
    if _Disk.watched:
        return
    from petals.server import from_pretrained

    original: Any = from_pretrained._load_state_dict_from_repo

    def read(model_name: str, block_prefix: str, **options: Any) -> dict[str, Any]:
        started = time.perf_counter()
        pause()
        tensors: dict[str, Any] = original(model_name, block_prefix, **options)
        n_bytes = touch(tensors)
        reads = _reads.get()
        if reads is not None:
            reads.append(Read(block_prefix, n_bytes, time.perf_counter() - started))
        return tensors

    from_pretrained._load_state_dict_from_repo = read
    _Disk.watched = True


def touch(tensors: dict[str, Any]) -> int:
    """Bring tensors of a mapped file into memory, which would otherwise be read when they are first used.

    :returns: their size in bytes
    """
    import torch

    for tensor in tensors.values():
        if tensor.numel():
            tensor.contiguous().flatten().view(torch.uint8)[::PAGE_BYTES].sum()
    return sum(tensor.nbytes for tensor in tensors.values())
