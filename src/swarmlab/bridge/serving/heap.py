"""Memory that was freed and that the C library keeps for itself."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim() -> None:
    """Give it back to the system, as far as this C library can (glibc).

    It keeps pieces of up to 32 MiB for later, where no memory plan and no other process can see that they are free.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
