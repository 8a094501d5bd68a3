"""What is wrong with a command line, in one line of our own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, get_origin, get_type_hints

from hydra.errors import OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from swarmlab.errors import BadInput
from swarmlab.settings.schema import RunSettings

NAME_VALUE = (
    "name=value, quoted for the shell where it has brackets or blanks, as in 'arms=[petals,swarmlab]'"
)

# What a field of each type takes, for whoever gave it something else.
WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a name or text",
    bool: "true or false",
    int | None: "a whole number or null",
    float | None: "a number or null",
    str | None: "text or null",
    list[str]: "a list, quoted for the shell, as in 'arms=[petals,swarmlab]'",
    list[int]: "a list of whole numbers, quoted for the shell, as in '{key}=[128,1024]'",
    list[float]: "a list of numbers, quoted for the shell, as in '{key}=[0,0.01]'",
}


def refuse_unknown(values: Mapping[Any, Any], kind: Any, where: str = "") -> None:
    """Hydra lets ``+name=value`` add anything; what nobody reads is a mistake."""
    known = get_type_hints(kind)
    for name, value in values.items():
        if name not in known:
            raise BadInput(f"{where}{name}", value, _takes(f"{where}{name}"))
        if is_dataclass(known[name]) and isinstance(value, Mapping):
            refuse_unknown(value, known[name], f"{where}{name}.")
        # OmegaConf looks at the type of plain entries of a list only
        if get_origin(known[name]) is list and any(isinstance(entry, (list, dict)) for entry in value):
            raise BadInput(f"{where}{name}", value, _takes(f"{where}{name}"))


def _takes(key: str) -> str:
    """What the setting of this name takes, in words."""
    kind, walked = RunSettings, ""
    for name in key.split("."):
        known = get_type_hints(kind) if is_dataclass(kind) else {}
        if name not in known:
            return f"a setting that exists: {', '.join(walked + one for one in known)}"
        kind, walked = known[name], f"{walked}{name}."
    if is_dataclass(kind):
        return f"one setting at a time: {', '.join(f'{walked}{one}=...' for one in get_type_hints(kind))}"
    return WORDS.get(kind, "another value").format(key=key)


def in_our_words(error: Exception, overrides: Sequence[str]) -> BadInput:
    """Hydra's and OmegaConf's errors in our words."""
    chain = [error, error.__cause__]
    key = next((one.full_key for one in chain if isinstance(one, OmegaConfBaseException)), None)
    if key:
        name, value = _given(re.sub(r"\[\d+\]$", "", key), overrides)  # of an entry, the list it is in
        return BadInput(name, value, _takes(name))
    parsing = next((one for one in chain if isinstance(one, OverrideParseException)), None)
    if parsing is not None:
        return BadInput("command line", parsing.override, NAME_VALUE)
    several = re.search(r"Ambiguous value for argument '([^=']+)=(.*)'", str(error))
    if several:
        return BadInput(several[1].lstrip("+~"), several[2], "one value; several make a run each, with -m")
    return BadInput("command line", " ".join(overrides), _first_lines(error))


def _given(key: str, overrides: Sequence[str]) -> tuple[str, str | None]:
    """The setting that was given last for this key, or below it, and its value; the key itself if there is none.

    OmegaConf names no more than the first part of ``nonsense.name=value`` that it does not know.
    """
    given = [(one.partition("=")[0].lstrip("+~"), one.partition("=")[2]) for one in reversed(overrides)]
    exact = next((one for one in given if one[0] == key), None)
    below = next((one for one in given if one[0].startswith(f"{key}.")), None)
    return exact or below or (key, None)


def _first_lines(error: Exception) -> str:
    """Hydra's message without its further explanations; of a wrapped error, what was wrapped."""
    lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
    return " ".join(lines[:4]) or type(error).__name__
