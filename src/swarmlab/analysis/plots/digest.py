"""What a figure shows, as one number: equal for equal data and words, whatever draws the pixels."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DIGITS = 6  # numbers count to so many significant digits: the rest may differ between machines
MARK = "swarmlab-data:"


def figure_digest(figure: Figure) -> str:
    """SHA-256 of every line, bar, area, image and text of the figure; ticks, sizes and fonts are left out."""
    digest = hashlib.sha256()
    for axes in figure.axes:
        for part in _parts(axes):
            digest.update(part.encode())
    for text in figure.texts:
        digest.update(_flat(text.get_text()).encode())
    return digest.hexdigest()


def metadata(figure: Figure, suffix: str) -> dict[str, Any]:
    """For ``savefig``: the digest, and no date, so that the same run gives the same file."""
    mark = MARK + figure_digest(figure)
    return {"Keywords": mark, "CreationDate": None} if suffix == ".pdf" else {"Description": mark}


def stored_digest(path: Path) -> str | None:
    """What ``metadata`` wrote into a PNG or PDF file; None if nothing is there."""
    found = re.search(MARK.encode() + rb"([0-9a-f]{64})", path.read_bytes())
    return found[1].decode() if found else None


def _parts(axes: Axes) -> Iterator[str]:
    yield "|".join(_flat(axes.get_title(loc=where)) for where in ("left", "center", "right"))
    yield f"{axes.get_xlabel()}|{axes.get_ylabel()}"
    for line in axes.lines:
        yield f"line {_numbers(line.get_xydata())}"
    for patch in axes.patches:
        yield f"patch {_numbers(patch.get_patch_transform().transform(patch.get_path().vertices))}"
    for collection in axes.collections:
        shapes = [_numbers(path.vertices) for path in collection.get_paths()]
        yield f"area {shapes} {_numbers(collection.get_offsets())} {_numbers(collection.get_array())}"
    for image in axes.images:
        yield f"image {_numbers(image.get_array())}"
    for text in axes.texts:
        yield f"text {_flat(text.get_text())}"


def _numbers(values: Any) -> str:
    if values is None:
        return "-"
    filled = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return " ".join(f"{value:.{DIGITS}g}" for value in filled.ravel())


def _flat(text: str) -> str:
    return " ".join(text.split())
