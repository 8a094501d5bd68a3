"""Claims: what a command shows, and where the numbers behind that stand in a summary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from swarmlab.errors import BadInput

SEPARATOR, ANY = " / ", "*"
DEFAULT_EXP, DEFAULT_MODEL = "failover", "tiny_llama"  # of the Makefile
MULTIRUN = "-m"


@dataclass(frozen=True)
class Number:
    """One measured number of a claim. Paths are of ``summary.json``, ``scenarios / kill_last / swarmlab / outcome``;
    ``*`` stands for everything at its place.

    :param what: in words
    :param ours: path
    :param against: path of the same number of another arm, of the same runs
    :param paper: the number as quoted
    :param counts: count the places with this value
    :param of: path of the total that ``ours`` is a part of
    :param form: how numbers are written
    :param exact: nothing is random: a single one misses no interval
    :param largest: the largest of all places in all runs, whatever scenarios those had
    :param where: only places with this metric above 0 beside it; with ``largest``
    """

    what: str
    ours: str
    against: str | None = None
    paper: float | None = None
    counts: Any = None
    of: str | None = None
    form: str = ".3g"
    exact: bool = False
    largest: bool = False
    where: str | None = None

    def arm(self, path: str) -> str:
        """Whose number a path leads to: what stands before the metric."""
        return path.split(SEPARATOR)[-2]


@dataclass(frozen=True)
class Claim:
    """A row of the README.

    :param expected: in words, what the command shows
    :param tolerance: in words, what may differ, and why
    :param published: folder in ``results/tables``; None while no run of it is published
    """

    claim: str
    command: str
    expected: str
    time: str
    disk: str
    tolerance: str
    published: str | None = None
    numbers: tuple[Number, ...] = ()


def parse_claims(raw: Any, source: str) -> list[Claim]:
    """
    :param raw: the content of a ``claims.yaml``
    :param source: its name, for the error
    :raises BadInput: if a claim or number lacks something or has something unknown
    """
    try:
        return [
            Claim(**{**_stripped(one), "numbers": tuple(Number(**n) for n in one.get("numbers", ()))})
            for one in raw
        ]
    except (TypeError, AttributeError) as error:
        known = ", ".join(field.name for kind in (Claim, Number) for field in fields(kind))
        raise BadInput(source, str(error), f"a list of claims with {known}") from error


def overrides_of(command: str) -> list[str]:
    """What a claim's command gives to ``python -m swarmlab.run``, as the Makefile puts it together; of a multirun
    what it gives to its first job, whose run is published first.

    :raises BadInput: if it is no ``make run``
    """
    words = shlex.split(command.rpartition("&&")[2])
    given = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    if (
        words[:2] != ["make", "run"]
        or len(given) != len(words) - 2
        or not given.keys() <= {"EXP", "MODEL", "ARGS"}
    ):
        raise BadInput("claims", command, "make run, with EXP=, MODEL= and ARGS=")
    arguments = shlex.split(given.get("ARGS", ""))
    if MULTIRUN in arguments:
        job = [one for one in arguments if one != MULTIRUN and not one.startswith("hydra/")]
        arguments = [one if "[" in one else one.split(",")[0] for one in job]
    return [
        f"+exp={given.get('EXP', DEFAULT_EXP)}",
        f"model={given.get('MODEL', DEFAULT_MODEL)}",
        *arguments,
    ]


def experiment_of(command: str) -> str:
    """What a claim's command runs.

    :raises BadInput: as :func:`overrides_of`
    """
    return overrides_of(command)[0].removeprefix("+exp=")


def makes(command: str, overrides: Sequence[str]) -> bool:
    """Whether a claim's command asks for the same as these overrides, up to the seed, which makes a repeat."""
    return _asked_for(overrides_of(command)) == _asked_for(overrides)


def _asked_for(overrides: Sequence[str]) -> set[str]:
    said_anyway = {f"model={DEFAULT_MODEL}"}
    return {one for one in overrides if not one.startswith("seed=")} - said_anyway


def _stripped(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.strip() if isinstance(value, str) else value for name, value in raw.items()}
