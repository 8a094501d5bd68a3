"""Does a run of +exp=recovery_speed show what ``experiments/recovery_speed/expected.yaml`` says? Assumptions first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swarmlab.analysis.checks import Finding, assume, expect, guard
from swarmlab.analysis.recovery_speed import Record
from swarmlab.analysis.recovery_speed_grid import Cell


def check_recovery_speed(
    record: Record,
    measured: Mapping[str, Any],
    expected: Mapping[str, Any],
    planned: Mapping[str, Sequence[Cell]],
    info: Mapping[str, Any],
) -> list[Finding]:
    """Everything that was checked, in reading order.

    :param planned: arm to its cells
    :param measured: as ``recovery_speed.measure`` returns it
    :param expected: ``all`` (arm to metrics, of every cell), and ``cells`` to arms to metrics
    """
    findings = [assume("run", info.get("status") == "complete", f"its status is {info.get('status')}")]
    for arm, cells in planned.items():
        for cell in cells:
            name = f"{cell.name} / {arm}"
            findings += guard(name, _record_is_sound, record, cell, arm)
            wanted = {**expected["all"].get(arm, {}), **expected["cells"].get(cell.name, {}).get(arm, {})}
            found = measured["scenarios"].get(cell.name, {}).get(arm)
            if found is not None:
                findings += [
                    expect(f"{name} / {metric}", found[metric], value) for metric, value in wanted.items()
                ]
    return findings


def _record_is_sound(record: Record, cell: Cell, arm: str) -> Iterator[Finding]:
    """Every server that was to die died, each was recovered from once, and every recovery has its floor."""
    name, repeats = f"{cell.name} / {arm}", record.repeats(cell.name, arm)
    yield assume(name, bool(repeats), f"{len(repeats)} sessions recorded")
    refused = [row for row in record.rows("faults", cell.name, arm) if row["ok"] is not True]
    shown = "; ".join(f"{row['target']} at {row['stage']}: {row['detail']}" for row in refused)
    yield assume(name, not refused, f"nemesis: {shown or 'no step went wrong'}")
    odd = [repeat for repeat in repeats if repeat.failures != cell.n_failed]
    yield assume(name, not odd, f"{len(repeats) - len(odd)} sessions with {cell.n_failed} confirmed failures")
    missed = [repeat for repeat in repeats if len(repeat.failovers) < cell.n_failed]
    yield assume(
        name, not missed, f"{len(repeats) - len(missed)} sessions tell of {cell.n_failed} recoveries"
    )
    bare = [repeat for repeat in repeats if repeat.floor_s is None]
    yield assume(name, not bare, f"{len(repeats) - len(bare)} sessions with a floor")
