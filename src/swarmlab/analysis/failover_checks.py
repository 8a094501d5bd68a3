"""Does a failover run show what ``experiments/failover/expected.yaml`` says? Assumptions come first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from swarmlab.analysis import metrics
from swarmlab.analysis.checks import Finding, Verdict, assume, expect, guard
from swarmlab.analysis.failover import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from swarmlab.analysis.evidence import Evidence, Part

DISTINCT_PER_64 = 20  # a text that repeats one token is "identical" whatever happens to the caches


def check_failover(
    evidence: Evidence, scenarios: Mapping[str, Any], expected: Mapping[str, Any], status: str
) -> list[Finding]:
    """Everything that was checked, in reading order.

    :param scenarios: as :func:`swarmlab.analysis.failover.summarise` returns them
    :param expected: ``scenarios`` to arms to metrics; per scenario ``failures`` (default 1) that must be confirmed
    :param status: how the run ended
    """
    findings = [assume("run", status == "complete", f"its status is {status}")]
    for scenario, wanted in expected["scenarios"].items():
        measured = scenarios.get(scenario, {})
        if any(arm in measured for arm in wanted["arms"]):
            findings += guard(scenario, reference_is_sound, evidence, scenario)
        for arm, expectations in wanted["arms"].items():
            if arm in measured:
                part, failures = evidence.part(scenario, arm), wanted.get("failures", 1)
                findings += guard(f"{scenario} / {arm}", record_is_sound, part, failures)
                findings += guard(f"{scenario} / {arm}", _compare, part, measured[arm], expectations)
            else:
                missing = Finding(f"{scenario} / {arm}", Verdict.UNKNOWN, "not in this run")
                findings.append(missing)
    return findings


def reference_is_sound(evidence: Evidence, scenario: str) -> Iterator[Finding]:
    """The failure-free run is there, agrees with plain transformers, and could have differed."""
    reference = evidence.part(scenario, "reference")
    name, tokens, plain = f"{scenario} / reference", reference.tokens, reference.plain
    yield assume(name, bool(tokens), f"{len(tokens)} tokens of the failure-free run are recorded")
    if not tokens:
        return
    same = "the same" if tokens == plain.tokens else "other"
    yield assume(name, tokens == plain.tokens, f"plain transformers gives {same} tokens")
    diff = None
    if reference.hidden is not None and plain.hidden is not None:
        diff = metrics.max_abs_diff(reference.hidden, plain.hidden)
    shown = (
        "cannot be compared"
        if diff is None
        else f"differ by {diff:.2g}, allowed {reference.allowed_diff:.2g}"
    )
    agrees = diff is not None and diff <= reference.allowed_diff
    yield assume(name, agrees, f"its hidden states and those of plain transformers {shown}")
    distinct, needed = metrics.distinct_tokens(tokens), math.ceil(DISTINCT_PER_64 * len(tokens) / 64)
    yield assume(name, distinct >= needed, f"{distinct} distinct tokens in {len(tokens)}, {needed} needed")


def record_is_sound(part: Part, failures: int) -> Iterator[Finding]:
    """Every step of the nemesis was confirmed, and the tokens in the history and in the arrays agree.

    :param failures: how many servers must have been taken away
    """
    name, faults = f"{part.scenario} / {part.arm}", part.rows("faults")
    refused = [row for row in faults if row["ok"] is not True]
    shown = "; ".join(
        f"{row['fault']} of {row['target']} at {row['stage']}: {row['detail']}" for row in refused
    )
    yield assume(name, not refused, f"nemesis: {shown or 'no step went wrong'}")
    injected = [row for row in faults if row["stage"] == "inject"]
    confirmed = [row for row in faults if row["stage"] == "confirm"]
    # an arm that gave up at the first failure was not there for the others
    ended_early = part.outcome is not None and part.outcome["outcome"] in ENDED_EARLY
    needed = min(failures, 1) if ended_early else failures
    met = len(part.confirmed) >= needed and len(confirmed) >= len(injected)
    wanted = max(needed, len(injected))
    yield assume(name, met, f"nemesis: {len(part.confirmed)} failures confirmed of {wanted}")
    if part.steps and part.saved_tokens is not None:
        told, saved = metrics.tokens_of(part.steps), part.saved_tokens
        shorter = min(len(told), len(saved))
        agree = told[:shorter] == saved[:shorter]
        yield assume(name, agree, f"history and arrays {'' if agree else 'dis'}agree on the tokens")


def _compare(part: Part, measured: Mapping[str, Any], expectations: Mapping[str, Any]) -> Iterator[Finding]:
    for metric, wanted in expectations.items():
        finding = expect(f"{part.scenario} / {part.arm} / {metric}", measured[metric], wanted)
        if metric == "outcome" and finding.verdict is not Verdict.HOLDS:
            finding = Finding(finding.name, finding.verdict, f"{finding.reason} ({measured['why']})")
        yield finding
