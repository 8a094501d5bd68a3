"""Does what is published of a run still show what ``expected.yaml`` says? The raw record is not there any more: its
verdict is taken over, and the stored metrics are compared anew, so that a number or an expectation that was changed is
noticed. Every section of an ``expected.yaml`` has a function here; one without is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarmlab.analysis import sim_vs_real
from swarmlab.analysis.balance import ORACLE
from swarmlab.analysis.balance_checks import check_order, without_oracle
from swarmlab.analysis.checks import NOT_THERE, Finding, Verdict, assume, expect
from swarmlab.analysis.failover import ENDED_EARLY

Metrics = Mapping[str, Any]  # or any other part of a JSON or YAML file

FINISHED = "done"  # a generation of +exp=failure_rates that came to its end
RECORDED = "swarm"  # the arm of +exp=record_dht


@dataclass(frozen=True)
class _Stored:
    """What is stored of a run: metrics over all scenarios and apart, ``run.json``, how long it was to take; and what
    ``expected.yaml`` says."""

    arms: Metrics
    scenarios: Metrics
    info: Metrics
    minutes: float | None
    expected: Metrics

    @property
    def planned(self) -> list[str]:
        return list(self.info.get("scenarios") or self.scenarios)

    @property
    def asked(self) -> Sequence[str]:
        """Arms that the run was to have."""
        return self.info.get("arms") or ()


def check_summary(
    summary: Metrics, expected: Metrics, info: Metrics, config: Metrics | None = None
) -> Iterator[Finding]:
    """Metrics against expectations, for the scenarios (or cells) and arms that the run was asked for.

    :param summary: ``summary.json``
    :param info: ``run.json``
    :param config: ``config.yaml``, of the run itself or of the one that it repeats
    """
    yield assume("run", info.get("status") == "complete", f"its status is {info.get('status')}")
    yield stored_verdict(summary)
    stored = _Stored(
        summary.get("arms", {}), summary.get("scenarios", {}), info, _minutes(info, config or {}), expected
    )
    for section, wanted in expected.items():
        if section in SECTIONS:
            yield from SECTIONS[section](stored, wanted)
        else:
            yield Finding(section, Verdict.UNKNOWN, f"not compared; known: {', '.join(SECTIONS)}")
    yield from _finished_are_right(stored)
    yield from _planned_is_there(stored)


def _planned_is_there(stored: _Stored) -> Iterator[Finding]:
    """Of what the run set out to measure nothing was left out, whether anything is expected of it or not."""
    names = stored.info.get("scenarios") or ()
    by_name = any(name in stored.scenarios for name in names)  # sim_vs_real has one part for all
    lacking = [name for name in names if by_name and name not in stored.scenarios]
    arms = [
        arm
        for arm in stored.asked
        if arm not in stored.arms and not any(arm in measured for measured in stored.scenarios.values())
    ]
    for name in [*lacking, *arms]:
        yield Finding(name, Verdict.UNKNOWN, NOT_THERE)


def stored_verdict(summary: Metrics) -> Finding:
    """What judging the raw record gave."""
    known = {str(verdict): verdict for verdict in Verdict}
    verdict = known.get(str(summary.get("verdict")), Verdict.UNKNOWN)
    # that it held does not replace a comparison of what is stored: without any, nothing is concluded
    return Finding(
        "verdict of the raw record", verdict, "; ".join(summary.get("reasons", ())) or "none stored",
        assumption=verdict is not Verdict.FAILS,
    )  # fmt: skip


def _check_scenarios(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    for name, entry in _mapping(wanted).items():
        if name in stored.planned:
            yield from _scenario(name, stored.scenarios.get(name, {}), _mapping(entry), stored)


def _scenario(name: str, measured: Metrics, entry: Metrics, stored: _Stored) -> Iterator[Finding]:
    for arm, metrics in _mapping(entry.get("arms", entry)).items():
        if arm in measured:
            about = f"{name} / {arm}"
            yield from _compare(about, measured[arm], without_oracle(_mapping(metrics), ORACLE in measured))
            yield from _failures(about, measured[arm], entry)
        elif arm in stored.asked and metrics:
            yield Finding(f"{name} / {arm}", Verdict.UNKNOWN, NOT_THERE)
    for metric, orders in _mapping(entry.get("orders")).items():
        for order in orders:
            yield from check_order(name, measured, metric, order, stored.asked)


def _failures(name: str, measured: Metrics, entry: Metrics) -> Iterator[Finding]:
    """As many failures were confirmed as +exp=failover asks for; an arm that gave up at the first met no others."""
    if "failures" not in entry and not {"failures_injected", "outcome"} <= measured.keys():
        return
    failures = entry.get("failures", 1)
    needed = min(failures, 1) if measured.get("outcome") in ENDED_EARLY else failures
    yield expect(f"{name} / failures_injected", measured.get("failures_injected"), {"min": needed})


def _check_cells(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    # where there is one for all, a cell's own expectations take its place: see _check_all
    if "all" not in stored.expected:
        yield from _check_scenarios(stored, wanted)


def _check_all(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    """Arm to metrics of every cell, but for what ``cells`` say of one."""
    apart = _mapping(stored.expected.get("cells"))
    for cell in stored.planned:
        measured, own = stored.scenarios.get(cell), _mapping(apart.get(cell))
        if measured is None:
            yield Finding(cell, Verdict.UNKNOWN, NOT_THERE)
            continue
        for arm in dict.fromkeys([*_mapping(wanted), *own]):
            if arm in measured:
                metrics = {**_mapping(_mapping(wanted).get(arm)), **_mapping(own.get(arm))}
                yield from _compare(f"{cell} / {arm}", measured[arm], metrics)
            elif arm in own and arm in stored.asked:
                yield Finding(f"{cell} / {arm}", Verdict.UNKNOWN, NOT_THERE)


def _check_arms(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    for arm, metrics in _mapping(wanted).items():
        if arm in stored.arms:
            yield from _compare(arm, stored.arms[arm], metrics)
        elif arm in stored.asked and metrics:
            yield Finding(arm, Verdict.UNKNOWN, NOT_THERE)


def _check_one_arm(name: str, section: str) -> Section:
    def check(stored: _Stored, wanted: Any) -> Iterator[Finding]:
        yield from _compare(section, stored.arms.get(name, {}), wanted)

    return check


def _check_agreement(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    yield from sim_vs_real.check(stored.arms, wanted, stored.info)


def _check_failures_per_minute(stored: _Stored, wanted: Any) -> Iterator[Finding]:
    if stored.minutes is None:
        yield assume("failures_per_minute", False, "neither overrides nor config.yaml say how many minutes")
        return
    needed = int(wanted * stored.minutes)
    for arm, metrics in stored.arms.items():
        yield expect(f"{arm} / failures_injected", metrics.get("failures_injected"), {"min": needed})


def _finished_are_right(stored: _Stored) -> Iterator[Finding]:
    """Whatever is expected: the tokens of a generation that came to its end are those of plain transformers."""
    for name, arms in stored.scenarios.items():
        for arm, metrics in arms.items():
            if metrics.get("outcome") == FINISHED:
                yield from _compare(f"{name} / {arm}", metrics, {"tokens_identical_ratio": 1.0})


def _compare(name: str, measured: Metrics, wanted: Any) -> Iterator[Finding]:
    for metric, value in _mapping(wanted).items():
        yield expect(f"{name} / {metric}", measured.get(metric), value)


def _minutes(info: Metrics, config: Metrics) -> float | None:
    """For how long a soak was to go on: its own overrides come before the config, which may be another run's."""
    given = [one.partition("=")[2] for one in info.get("overrides") or () if one.startswith("minutes=")]
    minutes = given[-1] if given else config.get("minutes")
    return None if minutes is None else float(minutes)


def _mapping(value: Any) -> Metrics:
    return value if isinstance(value, Mapping) else {}


Section = Callable[[_Stored, Any], Iterator[Finding]]
SECTIONS: dict[str, Section] = {
    "scenarios": _check_scenarios,
    "cells": _check_cells,
    "all": _check_all,
    "arms": _check_arms,
    "view": _check_one_arm("view", "view"),
    "recording": _check_one_arm(RECORDED, "recording"),
    "agreement": _check_agreement,
    "failures_per_minute": _check_failures_per_minute,
}
