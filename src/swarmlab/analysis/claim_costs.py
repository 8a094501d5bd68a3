"""What it takes to run the commands of all claims: the sum of what is typed beside each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from swarmlab.analysis.claims import Claim

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MEGABYTES = {"KB": 1e-3, "MB": 1.0, "GB": 1e3}
LEAST_GB, LEAST_H = 1e3, 3600.0  # from here on in the larger unit


def total_costs(claims: Iterable[Claim]) -> str:
    """In words; a command that shows several claims is run once.

    :raises BadInput: if what is typed is no time, or no size
    """
    once = {one.command: one for one in claims}.values()
    # "15 min (seconds on a stored run)" takes 15 min; "10 MB (0.4 GB for the model)" takes both
    seconds = sum(_amounts(one.time, SECONDS, "time")[0] for one in once)
    megabytes = sum(sum(_amounts(one.disk, MEGABYTES, "disk")) for one in once)
    minutes = round(seconds / 60)
    time = f"{minutes // 60} h {minutes % 60} min" if seconds >= LEAST_H else f"{minutes} min"
    disk = f"{megabytes / 1e3:.1f} GB" if megabytes >= LEAST_GB else f"{megabytes:.0f} MB"
    return f"All {len(once)} commands, one after another: about {time} and {disk}."


def _amounts(text: str, units: dict[str, float], field: str) -> list[float]:
    found = re.findall(rf"([\d.]+) ({'|'.join(units)})\b", text)
    if not found:
        raise BadInput(f"claims: {field}", text, f"a number and one of {', '.join(units)}")
    return [float(number) * units[unit] for number, unit in found]
