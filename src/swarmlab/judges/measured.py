"""What a judge makes of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from swarmlab.analysis.checks import Finding


@dataclass(frozen=True)
class Measured:
    """Numbers and what was checked.

    :param arms: arm to metric to value, over all scenarios
    :param scenarios: scenario to arm to metric to value; empty where an experiment has none
    :param findings: everything that was checked, assumptions included
    :param by_repeat: of a run over several populations: scenario to arm to metric to the values, one of each
    """

    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    scenarios: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    by_repeat: dict[str, dict[str, dict[str, list[Any]]]] = field(default_factory=dict)
