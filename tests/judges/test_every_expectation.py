"""Every expectation of every experiment is held against every published run, repeats included, that has its scenario
and its arm: changed to something impossible, it is noticed. (What no published run has, nothing published can miss.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from swarmlab.analysis.balance import ORACLE
from swarmlab.analysis.checks import Verdict, guard
from swarmlab.analysis.published_checks import SECTIONS, check_summary
from swarmlab.judges.claims import ROOT
from swarmlab.judges.expected import read_expected
from swarmlab.judges.registry import JUDGES
from swarmlab.record.published import read_published

Path = tuple[str | int, ...]

FAR = 1e18
BOUNDS = {"min": FAR, "max": -FAR, "value": FAR, "tolerance": -FAR, "absolute": -FAR, "relative": -FAR}
APART = ("scenarios", "cells")  # sections of which each entry is about one scenario
PUBLISHED = list(read_published(ROOT / "results"))
RUNS = [
    pytest.param(one.run.config, info, summary, id=f"{one.name}-{info['id']}")
    for one in PUBLISHED
    for info, summary in one.runs
]


def unshared(expected: Any) -> Any:
    """Without what YAML shares between two places: changed in one, it must stay in the other."""
    return json.loads(json.dumps(expected))


def leaves(node: Any, path: Path = ()) -> Iterator[Path]:
    """A plain value, a list of accepted values, or one order of arms."""
    if isinstance(node, dict):
        for name, below in node.items():
            yield from leaves(below, (*path, name))
    elif "orders" in path and isinstance(node[0], list):
        yield from ((*path, index) for index in range(len(node)))
    else:
        yield path


def at(node: Any, path: Path) -> Any:
    for step in path:
        node = node[step]
    return node


def impossible(path: Path, value: Any) -> Any:
    if "orders" in path:
        return value[::-1]
    if isinstance(value, list):
        return ["impossible"]
    return BOUNDS.get(str(path[-1]), "impossible" if isinstance(value, str) else FAR)


def findings(config: Any, info: Any, summary: Any, expected: Any) -> list[str]:
    """Those that do not hold."""
    found = guard("summary", check_summary, summary, expected, info, config)
    return [str(finding) for finding in found if finding.verdict is not Verdict.HOLDS]


def concerns(path: Path, value: Any, info: Any, summary: Any) -> bool:
    """Whether a run has what an expectation is about."""
    section, name, *rest = (*path, None)
    if section in APART and name not in info["scenarios"]:
        return False
    arms = summary["scenarios"].get(name, {}) if section in APART else summary["arms"]
    if "orders" in rest:  # an order of arms that are level is as good reversed
        return len({arms[arm][rest[1]] for arm in value if arm in arms}) > 1
    if f"_over_{ORACLE}" in str(path) and ORACLE not in arms:
        return False
    if section in APART and rest[0] not in ("arms", "failures"):
        return rest[0] in arms
    if section in APART and rest[0] == "arms":
        return rest[1] in arms
    return name in arms if section in ("arms", "all") else True


@pytest.mark.parametrize(("config", "info", "summary"), RUNS)
def test_each_that_is_changed_to_something_impossible_is_noticed(config, info, summary):
    expected = read_expected(info["exp"])
    assert findings(config, info, summary, expected) == []
    about = {path: at(expected, path) for path in leaves(expected)}
    about = {path: value for path, value in about.items() if concerns(path, value, info, summary)}
    unnoticed = []
    for path, value in about.items():
        other = unshared(expected)
        at(other, path[:-1])[path[-1]] = impossible(path, value)
        unnoticed += [] if findings(config, info, summary, other) else [path]
    assert about
    assert unnoticed == []


@pytest.mark.parametrize("exp", JUDGES)
def test_every_section_is_compared(exp):
    assert set(read_expected(exp)) <= set(SECTIONS)


def test_a_section_that_nobody_compares_is_unknown():
    (one, *_) = (one for one in PUBLISHED if one.name == "recovery_speed")
    expected = {**read_expected("recovery_speed"), "cell": {}}
    (reason,) = findings(one.run.config, *one.runs[0], expected)
    assert reason.startswith("unknown: cell: not compared; known: ")


CHANGES = {
    "recovery_speed": ("scenarios", "10_tokens_1_span", "swarmlab", "recovery_over_typical_floor", 9),
    "sim_vs_real": ("arms", "petals", "moves_real", 40),
    "failover_soak": ("arms", "swarmlab", "failures_injected", 3),
    "failover_all": ("scenarios", "in_flight", "swarmlab", "failures_injected", 1),
    "failure_rates": ("scenarios", "128_tokens_p_0.01", "swarmlab", "tokens_identical_ratio", 0.5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_number_that_was_changed_is_noticed_in_any_of_the_runs(name):
    (one,) = (one for one in PUBLISHED if one.name == name)
    *path, metric, value = CHANGES[name]
    expected = read_expected(one.run.info["exp"])
    for info, summary in one.runs:
        other = unshared(summary)
        if path[0] != "scenarios" or path[1] in other["scenarios"]:
            at(other, tuple(path))[metric] = value
            assert findings(one.run.config, info, other, expected)
