"""Claims and the numbers behind them: where each stands in a summary, and what it comes to over all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from swarmlab.analysis.stats import Estimate, estimate, paired_ratio, zero_count_bound
from swarmlab.errors import BadInput

Runs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # run.json and summary.json of each
Found = dict[tuple[str, ...], Any]  # run id and place in the summary, to the value there
SEPARATOR, ANY = " / ", "*"
MISSING = "-"


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
    :param exact: nothing is random, or the ratio of two arms has no interval of its own: none is missed
    """

    what: str
    ours: str
    against: str | None = None
    paper: float | None = None
    counts: Any = None
    of: str | None = None
    form: str = ".3g"
    exact: bool = False

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


@dataclass(frozen=True)
class Cells:
    """What a number comes to, in words."""

    paper: str
    other: str
    ours: str
    ratio: str


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


def _stripped(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.strip() if isinstance(value, str) else value for name, value in raw.items()}


def values_at(runs: Runs, path: str) -> Found:
    """The values at a path, in every run.

    :raises BadInput: if a run has nothing there
    """
    found: Found = {}
    for info, summary in runs:
        here = _walk(summary, tuple(path.split(SEPARATOR)), (str(info["id"]),))
        if not here:
            raise BadInput("claims", path, f"a place in the summary of {info['id']}")
        found.update(here)
    return found


def _walk(node: Any, path: tuple[str, ...], so_far: tuple[str, ...]) -> Found:
    if not path:
        return {so_far: node}
    if not isinstance(node, Mapping):
        return {}
    if path[0] != ANY:
        # what was named is the same for ours and the original's but for the arm, so only ``*`` tells places apart
        return _walk(node[path[0]], path[1:], so_far) if path[0] in node else {}
    found: Found = {}
    for name, below in node.items():
        found.update(_walk(below, path[1:], (*so_far, name)))
    return found


def evaluate(number: Number, runs: Runs) -> Cells:
    """The number over all runs: with its interval, as a count, or as a word.

    :raises BadInput: if a path leads nowhere
    """
    ours = values_at(runs, number.ours)
    theirs = values_at(runs, number.against) if number.against else {}
    if number.counts is None:
        # a place that has the number for neither arm has nothing to measure, as a scenario without a failure
        neither = {place for place in theirs if theirs[place] is None and ours.get(place) is None}
        ours, theirs = ({p: v for p, v in found.items() if p not in neither} for found in (ours, theirs))
    paper = MISSING if number.paper is None else f"{number.paper:{number.form}}"
    if number.of is not None:
        return Cells(paper, MISSING, _part(ours, values_at(runs, number.of)), MISSING)
    arm = number.arm(number.against) if number.against else ""
    shown = [
        _count(found, number.counts)
        if number.counts is not None
        else _words(found, number, _spread(runs, path))
        for found, path in ((theirs, number.against), (ours, number.ours))
    ]
    other = f"{arm}: {shown[0]}" if theirs else MISSING
    return Cells(
        paper, other, shown[1], MISSING if number.counts is not None else _ratios(ours, theirs, number, arm)
    )


def _spread(runs: Runs, path: str | None) -> tuple[float, float] | None:
    """The interval that a single run states beside its number: ``<metric>_low`` and ``<metric>_high``."""
    if path is None or len(runs) != 1 or ANY in path:
        return None
    for stem in (path, path.removesuffix("_mean")):
        try:
            low, high = (next(iter(values_at(runs, f"{stem}_{end}").values())) for end in ("low", "high"))
        except BadInput:
            continue
        return None if low is None or high is None else (low, high)
    return None


def _words(found: Found, number: Number, spread: tuple[float, float] | None) -> str:
    values = [value for value in found.values() if value is not None]
    if any(isinstance(value, (str, bool)) for value in values):
        counted = Counter(map(str, values)).most_common()
        return counted[0][0] if len(counted) == 1 else ", ".join(f"{word} {n} times" for word, n in counted)
    result = estimate(values)
    if result is None:
        return "never"
    missing = len(found) - len(values)
    if spread is not None:
        return Estimate(result.value, *spread, result.n).words(number.form)
    words = format(result.value, number.form) if number.exact else result.words(number.form)
    return words + (f", never in {missing}" if missing else "")


def _count(found: Found, wanted: Any) -> str:
    return f"{sum(value == wanted for value in found.values())} of {len(found)}"


def _part(found: Found, total: Found) -> str:
    part, whole = sum(found.values()), sum(total.values())
    bound = zero_count_bound(whole) if part == 0 else None
    return f"{part:,} of {whole:,}" + (f" (95 %: below {bound:.2g})" if bound is not None else "")


def _numeric(found: Found) -> bool:
    return bool(found) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in found.values()
        if value is not None
    )


def _ratios(ours: Found, theirs: Found, number: Number, arm: str) -> str:
    """To the paper's number and to the other arm's in the same run and place."""
    found = []
    if number.paper and _numeric(ours):
        paper = number.paper
        found.append((estimate(value / paper for value in ours.values() if value is not None), "the paper"))
    if _numeric(ours) and _numeric(theirs):
        found.append((paired_ratio(ours, theirs, "median"), arm))
    form = ".2g"
    words = [
        f"{format(ratio.value, form) if number.exact else ratio.words(form)} of {whose}"
        for ratio, whose in found
        if ratio is not None
    ]
    return "; ".join(words) or MISSING
