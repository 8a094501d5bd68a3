"""No part of the package is a copy of another: the same lines in two places become different ones in time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
TOO_MANY_LINES = 12  # of code, one after another


def code_lines(text: str) -> list[tuple[int, str]]:
    """Numbered, without what modules have in common by right: imports, comments, empty lines."""
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [
        (number, line) for number, line in stripped if line and not line.startswith(("#", "import ", "from "))
    ]


def copies(texts: dict[str, str], too_many: int = TOO_MANY_LINES) -> list[list[str]]:
    """Places, as ``file:line``, at which the same lines begin."""
    places = defaultdict(list)
    for name, text in sorted(texts.items()):
        lines = code_lines(text)
        for first in range(len(lines) - too_many + 1):
            same = tuple(line for _, line in lines[first : first + too_many])
            places[same].append(f"{name}:{lines[first][0]}")
    return [found for found in places.values() if len(found) > 1]


def test_a_copy_is_found_also_if_something_else_surrounds_it():
    body = [f"x{number} = {number}" for number in range(4)]
    texts = {"a": "\n".join(["import a", *body]), "b": "\n".join(["y = 1", *body, "z = 1"])}
    assert copies(texts, 4) == [["a:2", "b:2"]]
    assert not copies(texts, 5)


def test_no_two_places_have_the_same_lines():
    found = copies({str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")})
    assert not found
