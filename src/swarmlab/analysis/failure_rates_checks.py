"""Does a run of +exp=failure_rates show what ``experiments/failure_rates/expected.yaml`` says? Assumptions first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from swarmlab.analysis import metrics
from swarmlab.analysis.checks import Finding, Verdict, assume, expect, guard
from swarmlab.analysis.failure_rates import Record
from swarmlab.analysis.failure_rates_grid import Cell, How
from swarmlab.analysis.failure_rates_model import expected_failures

DISTINCT_PER_64 = 20  # a sequence that repeats one token is "identical" whatever happens to the caches
MAX_DISTINCT = 40  # ... of a long one so many are enough, whatever the vocabulary
UNLIKELY = 5.0  # standard deviations by which the number of resets may differ from what the chances say


def check_failure_rates(
    record: Record,
    measured: Mapping[str, Any],
    expected: Mapping[str, Any],
    info: Mapping[str, Any],
) -> list[Finding]:
    """Everything that was checked, in reading order.

    :param measured: as ``failure_rates.measure`` returns it
    :param expected: ``cells`` to arms to metrics, and ``arms`` to metrics over all cells
    :param info: ``run.json``
    """
    findings = [assume("run", info.get("status") == "complete", f"its status is {info.get('status')}")]
    planned, arms = info.get("scenarios") or [], info.get("arms") or []
    present = [cell.name for cell in record.cells]
    missing = [name for name in planned if name not in present]
    findings.append(assume("cells", not missing, f"missing: {', '.join(missing) or 'none'}"))
    for cell in record.cells:
        if cell.p == 0:
            findings += guard(cell.name, _reference_is_sound, record, cell)
        for arm in arms:
            if arm == "petals" and cell.p == 0:
                continue  # not run: it is the restart arm then
            findings += guard(f"{cell.name} / {arm}", _record_is_sound, record, cell, arm)
            if arm in measured["scenarios"].get(cell.name, {}):
                findings += guard(
                    f"{cell.name} / {arm}",
                    _tokens_are_right,
                    cell,
                    arm,
                    measured["scenarios"][cell.name][arm],
                )
    findings += guard("expected", _compare, measured, expected, planned, arms)
    return findings


def _reference_is_sound(record: Record, cell: Cell) -> Iterator[Finding]:
    tokens, name = record.reference(cell), f"{cell.name} / plain"
    yield assume(
        name, len(tokens) == cell.length, f"{len(tokens)} of {cell.length} tokens of plain transformers"
    )
    distinct = metrics.distinct_tokens(tokens)
    needed = min(math.ceil(DISTINCT_PER_64 * cell.length / 64), MAX_DISTINCT)
    yield assume(name, distinct >= needed, f"{distinct} distinct tokens, {needed} needed")


def _record_is_sound(record: Record, cell: Cell, arm: str) -> Iterator[Finding]:
    """The arm took part, and sessions were reset as often as they should be, each confirmed."""
    name, rows = f"{cell.name} / {arm}", record.outcomes(cell, arm)
    yield assume(name, bool(rows), f"{len(rows)} generations recorded")
    faults = record.rows("faults", cell.name, arm)
    refused = [row for row in faults if row["ok"] is not True]
    shown = "; ".join(f"{row['target']} at {row['stage']}: {row['detail']}" for row in refused)
    yield assume(name, not refused, f"resets: {shown or 'no step went wrong'}")
    injected = sum(row["stage"] == "inject" for row in faults)
    confirmed = sum(row["stage"] == "confirm" for row in faults)
    yield assume(name, injected == confirmed, f"resets: {confirmed} confirmed of {injected}")
    finished = record.finished(cell, arm)
    if not finished or len(finished) < len(rows):
        return
    met = record.failures(cell, arm)
    yield assume(
        name, met <= injected, f"the client met {met} failures, the servers lost {injected} messages"
    )
    if arm != "restart":  # whose number of failures is geometric: any is plausible
        wanted = len(finished) * expected_failures(arm, cell.length, cell.p)
        plausible = abs(injected - wanted) <= UNLIKELY * math.sqrt(max(wanted, 1.0))
        yield assume(name, plausible, f"{injected} messages lost, {wanted:.1f} expected")


def _tokens_are_right(cell: Cell, arm: str, numbers: Mapping[str, Any]) -> Iterator[Finding]:
    if numbers["outcome"] == "done":
        yield expect(f"{cell.name} / {arm} / tokens_identical_ratio", numbers["tokens_identical_ratio"], 1.0)


def _compare(
    measured: Mapping[str, Any], expected: Mapping[str, Any], planned: list[str], arms: list[str]
) -> Iterator[Finding]:
    for name, wanted in expected["cells"].items():
        for arm in (arm for arm in wanted if name in planned and arm in arms):
            numbers = measured["scenarios"].get(name, {}).get(arm)
            for metric, value in wanted[arm].items():
                about = f"{name} / {arm} / {metric}"
                if numbers is None:
                    yield Finding(about, Verdict.UNKNOWN, "not in this run")
                    continue
                finding = expect(about, numbers[metric], value)
                note = "" if numbers["how"] == How.MEASURED else f" ({numbers['how']})"
                yield Finding(about, finding.verdict, finding.reason + note)
    for arm, wanted in expected["arms"].items():
        for metric, value in wanted.items() if arm in arms else ():
            numbers = measured["arms"].get(arm, {})
            if numbers.get(metric) is not None:  # nothing was measured with failures: nothing to compare
                yield expect(f"{arm} / {metric}", numbers[metric], value)
