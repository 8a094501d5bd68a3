"""Which GPUs are meant by numbers, and how a process is shown some of them only. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
# By itself CUDA counts the fastest GPU first; nvidia-smi counts by the place on the bus.
CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def visible_gpus(numbers: Sequence[int], mask: str | None, field: str = "cluster.gpus") -> list[str]:
    """Names of GPUs, for ``CUDA_VISIBLE_DEVICES``.

    On a shared machine, whoever gave us some GPUs has set that variable; numbers then count among those, so that
    nobody else's are taken.

    :param numbers: from 0 on
    :param mask: what the variable is now, with numbers, UUIDs or MIG instances; None if it is not set
    :param field: whose numbers they are
    :raises BadInput: for a number that is not there
    """
    if mask is None:
        return [str(number) for number in numbers]
    given = [name.strip() for name in mask.split(",") if name.strip()]
    for number in numbers:
        if number >= len(given):
            allowed = f"numbers below {len(given)}: {CUDA_VISIBLE}={mask} shows so many"
            raise BadInput(field, number, allowed)
    return [given[number] for number in numbers]
