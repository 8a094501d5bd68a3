"""Verdicts with three values and reasons. Unknown (the data cannot support a verdict) is never a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


# Exit codes of the entry points that judge; 2 is bad input.
EXIT_CODES = {Verdict.HOLDS: 0, Verdict.FAILS: 1, Verdict.UNKNOWN: 3}


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    :param name: what, for example ``kill_last / petals / outcome``
    :param assumption: True if it must hold before any result is believed
    """

    name: str
    verdict: Verdict
    reason: str
    assumption: bool = False

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.name}: {self.reason}"


NOT_THERE = "not in this run"


def assume(name: str, met: bool, reason: str) -> Finding:
    """An assumption; one that is not met makes everything unknown."""
    return Finding(name, Verdict.HOLDS if met else Verdict.UNKNOWN, reason, assumption=True)


def conclude(findings: Sequence[Finding]) -> Verdict:
    """The verdict: unknown if an assumption is not met or nothing was checked, else the worst finding."""
    checks = [finding.verdict for finding in findings if not finding.assumption]
    if not checks or any(finding.assumption and finding.verdict is not Verdict.HOLDS for finding in findings):
        return Verdict.UNKNOWN
    return worst(checks)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Fails before unknown before holds; unknown if there is none."""
    given = set(verdicts)
    return next(
        (one for one in (Verdict.FAILS, Verdict.UNKNOWN, Verdict.HOLDS) if one in given), Verdict.UNKNOWN
    )


def guard(name: str, check: Callable[..., Iterable[Finding]], *arguments: Any) -> list[Finding]:
    """The findings of a check; one that throws is an assumption not met, neither a crash nor a pass."""
    try:
        return list(check(*arguments))
    except Exception as error:  # noqa: BLE001  whatever a damaged record makes it do
        return [assume(name, False, f"the check failed with {type(error).__name__}: {error}")]


def expect(name: str, measured: Any, wanted: Any) -> Finding:
    """Compare a number or word with what was expected of it.

    :param measured: None if it is not available
    :param wanted: a plain value, a list of accepted values, or a mapping with ``min`` and/or ``max``, or with
        ``value`` and ``tolerance`` (absolute)
    :raises ValueError: if the expectation cannot be understood
    """
    if isinstance(wanted, Mapping):
        accepted, words = _range(name, wanted)
    elif isinstance(wanted, list):
        accepted, words = (lambda value: value in wanted), " or ".join(map(str, wanted))
    else:
        accepted, words = (lambda value: value == wanted), str(wanted)
    if measured is None:
        return Finding(name, Verdict.UNKNOWN, f"not available, expected {words}")
    verdict = Verdict.HOLDS if accepted(measured) else Verdict.FAILS
    shown = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    return Finding(name, verdict, f"{shown}, expected {words}")


def _range(name: str, wanted: Mapping[str, Any]) -> tuple[Callable[[float], bool], str]:
    if not wanted or set(wanted) - {"min", "max", "value", "tolerance"}:
        raise ValueError(f"{name}: expected min, max, or value and tolerance, got {dict(wanted)}")
    if "value" in wanted:
        low, high = wanted["value"] - wanted["tolerance"], wanted["value"] + wanted["tolerance"]
    else:
        low, high = wanted.get("min", float("-inf")), wanted.get("max", float("inf"))
    words = {(True, False): f"at most {high:g}", (False, True): f"at least {low:g}"}.get(
        (low == float("-inf"), high == float("inf")), f"{low:g} to {high:g}"
    )
    return (lambda value: low <= value <= high), words
