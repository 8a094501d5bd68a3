"""What the numbers of a claim come to over all published runs: with an interval, as a count, or as a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swarmlab.analysis.claims import ANY, SEPARATOR, Number
from swarmlab.analysis.stats import Estimate, estimate, median, paired_ratio, zero_count_bound
from swarmlab.errors import BadInput

Runs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # run.json and summary.json of each
Found = dict[tuple[str, ...], Any]  # run id and place in the summary, to the value there
MISSING = "-"
FINE = 0.1  # ratios from here on are written to hundredths


@dataclass(frozen=True)
class Cells:
    """What a number comes to, in words.

    :param run_ids: of the runs that have it, in the order in which they are published
    """

    paper: str
    other: str
    ours: str
    ratio: str
    run_ids: tuple[str, ...] = ()


def values_at(runs: Runs, path: str, *, of_any_scenarios: bool = False) -> Found:
    """The values at a path, in every run that set out to measure them: a repeat may be of some arms or scenarios.

    :param of_any_scenarios: also what an arm comes to over other scenarios than those of the first run
    :raises BadInput: if no run has anything there, or one lacks what it was asked for
    """
    found: Found = {}
    lacking: list[str] = []
    for info, summary in runs:
        alike = of_any_scenarios or over_the_same_scenarios(runs[0][0], info)
        if not path.startswith("scenarios") and not alike:
            continue  # what an arm comes to over other scenarios is another number
        here = _walk(summary, tuple(path.split(SEPARATOR)), (str(info["id"]),))
        if not here and was_asked_for(info, path):
            raise BadInput("claims", path, f"a place in the summary of {info['id']}")
        lacking += [] if here else [str(info["id"])]
        found.update(here)
    if not found:
        raise BadInput("claims", path, f"a place in the summary of {', '.join(lacking)}")
    return found


def over_the_same_scenarios(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether what an arm comes to over all scenarios means the same in two runs.

    :param first: ``run.json``, as ``other``
    """
    return set(first.get("scenarios") or ()) == set(other.get("scenarios") or ())


def was_asked_for(info: Mapping[str, Any], path: str) -> bool:
    """Whether the arm and the scenario of a path are among those of the run."""
    section, *names, _ = path.split(SEPARATOR)
    kinds = ("scenarios", "arms") if section == "scenarios" else ("arms",)
    return all(
        name == ANY or info.get(kind) is None or name in info[kind]
        for kind, name in zip(kinds, names, strict=False)
    )


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

    Repeats of one scenario are summed up first, by their median, so that an interval over scenarios is not made
    narrow by repeats; an interval of a number of one scenario is over the runs.

    :raises BadInput: if a path leads nowhere
    """
    if number.largest:
        return _largest(number, runs)
    ours = values_at(runs, number.ours)
    theirs = values_at(runs, number.against) if number.against else {}
    if number.counts is None:
        neither = _for_neither(ours, theirs)
        ours, theirs = ({p: v for p, v in found.items() if p not in neither} for found in (ours, theirs))
    paper = MISSING if number.paper is None else f"{number.paper:{number.form}}"
    run_ids = tuple(dict.fromkeys(place[0] for place in (*ours, *theirs)))
    if number.of is not None:
        return Cells(paper, MISSING, _part(ours, values_at(runs, number.of)), MISSING, run_ids)
    arm = number.arm(number.against) if number.against else ""
    shown = [
        _count(found, number.counts)
        if number.counts is not None
        else _words(found, number, _spread(runs, path))
        for found, path in ((theirs, number.against), (ours, number.ours))
    ]
    other = f"{arm}: {shown[0]}" if theirs else MISSING
    ratio = MISSING if number.counts is not None else _ratios(ours, theirs, number, arm, runs)
    return Cells(paper, other, shown[1], ratio, run_ids)


def _largest(number: Number, runs: Runs) -> Cells:
    """With whose it is, and of how many."""
    found = values_at(runs, number.ours, of_any_scenarios=True)
    if number.where is not None:
        beside = f"{number.ours.rpartition(SEPARATOR)[0]}{SEPARATOR}{number.where}"
        counted = values_at(runs, beside, of_any_scenarios=True)
        found = {place: value for place, value in found.items() if counted.get(place)}
    found = {place: value for place, value in found.items() if value is not None}
    if not found:
        return Cells(MISSING, MISSING, "never", MISSING)
    place = max(found, key=found.__getitem__)
    whose = f"{place[-1]}; " if len(place) > 1 else ""
    words = f"{found[place]:{number.form}} ({whose}largest of {len(found)}{_of_runs(found)})"
    return Cells(MISSING, MISSING, words, MISSING, tuple(dict.fromkeys(run for run, *_ in found)))


def _for_neither(ours: Found, theirs: Found) -> set[tuple[str, ...]]:
    """Places that have the number for neither arm: there is nothing to measure, as in a scenario without a failure.

    Where a repeat has one arm only, the other runs say whether its scenario is such a one.
    """
    if not theirs:
        return set()
    measured = {place[1:] for found in (ours, theirs) for place, value in found.items() if value is not None}
    lacking = {place for place in (*ours, *theirs) if ours.get(place) is None and theirs.get(place) is None}
    return {place for place in lacking if place in theirs or place[1:] not in measured}


def _spread(runs: Runs, path: str | None) -> Estimate | None:
    """What a single run states beside its number: that of each population, or ``<metric>_low`` and ``<metric>_high``,
    and of how many repeats."""
    if path is None or len(runs) != 1 or ANY in path:
        return None
    if populations := _by_repeat(runs, path):
        return estimate(populations.values(), "mean")
    for stem in (path, path.removesuffix("_mean")):
        low, high = (_beside(runs, f"{stem}_{end}") for end in ("low", "high"))
        if low is not None and high is not None:
            head = path.rpartition(SEPARATOR)[0]
            counts = (_beside(runs, f"{head}{SEPARATOR}{name}") for name in ("repeats", "recoveries"))
            return Estimate(0.0, low, high, next((int(count) for count in counts if count), 0))
    return None


def _by_repeat(runs: Runs, path: str) -> dict[int, float | None]:
    """Population to its value, of a single run that states the mean over several (``by_repeat`` of the summary)."""
    if len(runs) != 1 or ANY in path:
        return {}
    _, *names = path.split(SEPARATOR)
    found = _walk(runs[0][1], ("by_repeat", *names), ())
    return {repeat: value for values in found.values() for repeat, value in enumerate(values)}


def _beside(runs: Runs, path: str) -> Any:
    try:
        return next(iter(values_at(runs, path).values()))
    except BadInput:
        return None


def _by_place(found: Found) -> Found:
    """Median over the runs of each place; of a single place, the values of the runs."""
    places: dict[tuple[str, ...], list[Any]] = {}
    for (_, *place), value in found.items():
        places.setdefault(tuple(place), []).append(value)
    return found if len(places) == 1 else {place: median(values) for place, values in places.items()}


def _words(found: Found, number: Number, spread: Estimate | None) -> str:
    values = [value for value in found.values() if value is not None]
    if any(isinstance(value, (str, bool)) for value in values):
        counted = Counter(map(str, values)).most_common()
        if len(counted) == 1:
            return counted[0][0] + _of_runs(found)
        return ", ".join(f"{word} {n} times" for word, n in counted)
    result = estimate(_by_place(found).values())
    if result is None:
        return "never"
    if spread is not None:
        result = replace(spread, value=result.value)
    if number.exact and result.n == 1:
        words = format(result.value, number.form)
    else:
        words = result.words(number.form).replace(f" (n = {result.n})", _n(found, result.n))
    missing = len(found) - len(values)
    return words + (f", never in {missing}" if missing else "")


def _n(found: Found, n: int) -> str:
    """What n counts, where a number is over both scenarios and runs; nothing where nobody says."""
    runs, places = len({place[0] for place in found}), len({place[1:] for place in found})
    counted = f"{n} scenarios in {runs} runs" if runs > 1 and places > 1 else n
    return f" (n = {counted})" if n else ""


def _of_runs(found: Found) -> str:
    runs = len({place[0] for place in found})
    return f" in {runs} runs" if runs > 1 else ""


def _count(found: Found, wanted: Any) -> str:
    return f"{sum(value == wanted for value in found.values())} of {len(found)}{_of_runs(found)}"


def _part(found: Found, total: Found) -> str:
    part, whole = sum(found.values()), sum(total.values())
    bound = zero_count_bound(whole) if part == 0 else None
    words = f"{part:,} of {whole:,}{_of_runs(found)}"
    return words + (f" (95 %: below {bound:.2g})" if bound is not None else "")


def _numeric(found: Found) -> bool:
    return bool(found) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in found.values()
        if value is not None
    )


def _ratios(ours: Found, theirs: Found, number: Number, arm: str, runs: Runs) -> str:
    """To the paper's number and to the other arm's in the same run and place, or in the same populations."""
    found = []
    if number.paper and _numeric(ours):
        paper = number.paper
        values = _by_place(ours).values()
        found.append((estimate(value / paper for value in values if value is not None), "the paper"))
    if _numeric(ours) and _numeric(theirs):
        # a run that has only one of the two says nothing of the ratio
        both = {place for place in ours if ours[place] is not None and theirs.get(place) is not None}
        mine, other = (
            _by_place({place: of[place] for place in of if place in both}) for of in (ours, theirs)
        )
        mine_each, theirs_each = (_by_repeat(runs, path) for path in (number.ours, number.against or ANY))
        populations = paired_ratio(mine_each, theirs_each)
        found.append((populations or paired_ratio(mine, other, "median"), arm))
    words = [f"{_ratio(ratio, number)} of {whose}" for ratio, whose in found if ratio is not None]
    return "; ".join(words) or MISSING


def _ratio(ratio: Estimate, number: Number) -> str:
    form = ".2f" if ratio.value >= FINE else ".2g"  # near 1 two significant digits would tell nothing
    return format(ratio.value, form) if number.exact and ratio.n == 1 else ratio.words(form)
