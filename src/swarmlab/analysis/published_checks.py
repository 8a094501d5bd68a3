"""Does what is published of a run still show what ``expected.yaml`` says? The raw record is not there any more: its
verdict is taken over, and the stored metrics are compared anew, so that an expectation that was changed is noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swarmlab.analysis.balance import ORACLE
from swarmlab.analysis.balance_checks import check_order, without_oracle
from swarmlab.analysis.checks import Finding, Verdict, assume, expect

Metrics = Mapping[str, Any]  # or any other part of a JSON or YAML file


def check_summary(
    summary: Mapping[str, Any], expected: Mapping[str, Any], info: Mapping[str, Any]
) -> Iterator[Finding]:
    """Metrics against expectations, for the scenarios (or cells) and arms that the run was asked for.

    :param summary: ``summary.json``
    :param info: ``run.json``
    """
    yield assume("run", info.get("status") == "complete", f"its status is {info.get('status')}")
    yield stored_verdict(summary)
    scenarios, arms = summary.get("scenarios", {}), summary.get("arms", {})
    planned = info.get("scenarios") or list(scenarios)
    for section in ("scenarios", "cells"):
        for scenario, entry in _mapping(expected.get(section)).items():
            if scenario in planned:
                yield from _scenario(scenario, scenarios.get(scenario, {}), _mapping(entry), info)
    for arm, metrics in _mapping(expected.get("arms")).items():
        if arm in arms:
            yield from _compare(arm, arms[arm], metrics)
    if "view" in expected:
        yield from _compare("view", arms.get("view", {}), expected["view"])


def stored_verdict(summary: Mapping[str, Any]) -> Finding:
    """What judging the raw record gave."""
    known = {str(verdict): verdict for verdict in Verdict}
    verdict = known.get(str(summary.get("verdict")), Verdict.UNKNOWN)
    return Finding(
        "verdict of the raw record", verdict, "; ".join(summary.get("reasons", ())) or "none stored"
    )


def _scenario(name: str, measured: Mapping[str, Metrics], entry: Metrics, info: Metrics) -> Iterator[Finding]:
    wanted = entry.get("arms", entry)
    for arm, metrics in _mapping(wanted).items():
        if arm in measured:
            yield from _compare(
                f"{name} / {arm}", measured[arm], without_oracle(_mapping(metrics), ORACLE in measured)
            )
        elif arm in info.get("arms", ()) and metrics:
            yield Finding(f"{name} / {arm}", Verdict.UNKNOWN, "not in this run")
    for metric, orders in _mapping(entry.get("orders")).items():
        for order in orders:
            yield from check_order(name, measured, metric, [arm for arm in order if arm in measured])


def _compare(name: str, measured: Metrics, wanted: Any) -> Iterator[Finding]:
    for metric, value in _mapping(wanted).items():
        yield expect(f"{name} / {metric}", measured.get(metric), value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
