"""The arms of placement experiments, and how what they do in simulation is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarmlab.placement.appendix_d import AppendixD
from swarmlab.placement.registry import POLICIES
from swarmlab.record.rundir import RunDir
from swarmlab.sim.oracle import ORACLE, Oracle
from swarmlab.sim.world import Arm
from swarmlab.types import Event

GAIN_PERCENT = {"appendix_d_1": 1, "appendix_d_10": 10, "appendix_d_20": 20}

# Their servers keep what they have loaded; all others unload everything, as unmodified Petals does.
KEEP_OVERLAP = ("swarmlab", "greedy_soft_min")


def arm_of(name: str) -> Arm:
    """The policy of an arm, and the kind of server that carries it out."""
    if name in GAIN_PERCENT:
        return Arm(name, AppendixD(p=GAIN_PERCENT[name] / 100))
    if name == ORACLE:
        return Arm(name, Oracle(), keeps_overlap=True)
    return Arm(name, POLICIES[name](), keeps_overlap=name in KEEP_OVERLAP)


def record(run_dir: RunDir, events: Sequence[Event], **where: Any) -> None:
    """Append a simulated history to a run's; ``t`` is in simulated seconds."""
    history = run_dir.history
    for event in events:
        history.write(event.kind, event.arm, at_s=history.start_s + event.t_s, **where, **event.fields)
