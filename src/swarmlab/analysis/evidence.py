"""The raw record of a run, and the part of it that one arm left in one scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from swarmlab.analysis import metrics
from swarmlab.analysis.failures_met import FailureMet, failures_met

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from swarmlab.analysis.metrics import Arrays, Row, Tokens

TOLERANCE = 3e-4  # float32 on CPU; a failure-free control differs from plain transformers by up to 2e-4
REFERENCE, PLAIN = (
    "reference",
    "plain",
)  # the failure-free run on the same swarm; transformers without a swarm
MARKING_KINDS = ("outcomes", "steps", "faults")  # an arm that left any of these took part


@dataclass(frozen=True)
class Evidence:
    """The raw record of a run.

    :param history: rows per kind; absent kinds have none
    :param states: scenario and arm to the arrays saved for it
    :param tolerance: largest difference of hidden states of size 1 that still counts as identical
    """

    history: Mapping[str, Sequence[Row]]
    states: Callable[[str, str], Arrays | None]
    tolerance: float = TOLERANCE

    def rows(self, kind: str, scenario: str, arm: str | None = None) -> list[Row]:
        rows = self.history.get(kind, ())
        return [row for row in rows if row.get("scenario") == scenario and arm in {None, row["arm"]}]

    def scenarios(self) -> list[str]:
        seen = (row.get("scenario") for kind in MARKING_KINDS for row in self.history.get(kind, ()))
        return list(dict.fromkeys(name for name in seen if name))

    def arms(self, scenario: str) -> list[str]:
        """The compared arms that took part, in the order in which they ran."""
        seen = (row["arm"] for kind in MARKING_KINDS for row in self.rows(kind, scenario))
        return list(dict.fromkeys(arm for arm in seen if arm not in {REFERENCE, PLAIN}))

    def part(self, scenario: str, arm: str) -> Part:
        return Part(self, scenario, arm)


@dataclass(frozen=True)
class Part:
    """What one arm left in one scenario."""

    evidence: Evidence
    scenario: str
    arm: str

    def rows(self, kind: str) -> list[Row]:
        return self.evidence.rows(kind, self.scenario, self.arm)

    @cached_property
    def steps(self) -> list[Row]:
        return sorted(self.rows("steps"), key=lambda row: row["t"])

    @cached_property
    def confirmed(self) -> list[Row]:
        """The confirmed faults that took a server away."""
        return metrics.confirmed_failures(self.rows("faults"))

    @cached_property
    def failures(self) -> list[FailureMet]:
        """Those faults that the client met."""
        return failures_met(self.rows("faults"), self.steps, self.reference.tokens)

    @cached_property
    def outcome(self) -> Row | None:
        """What was recorded last about how it ended."""
        rows = self.rows("outcomes")
        return rows[-1] if rows else None

    @cached_property
    def states(self) -> Arrays | None:
        return self.evidence.states(self.scenario, self.arm)

    @cached_property
    def hidden(self) -> metrics.Array | None:
        return None if self.states is None else self.states.get("hidden")

    @cached_property
    def saved_tokens(self) -> Tokens | None:
        """The tokens in the arrays; None if they hold none."""
        token_ids = None if self.states is None else self.states.get("token_ids")
        if token_ids is None or token_ids.ndim != 2:
            return None
        return [tuple(int(token) for token in column) for column in token_ids.T]

    @cached_property
    def tokens(self) -> Tokens:
        """What was produced: from the saved arrays, or else from the rows of the steps."""
        return metrics.tokens_of(self.steps) if self.saved_tokens is None else self.saved_tokens

    @cached_property
    def reference(self) -> Part:
        return self.evidence.part(self.scenario, REFERENCE)

    @cached_property
    def allowed_diff(self) -> float:
        """Largest difference of hidden states that still counts as identical.

        The tolerance is meant for hidden states of about 1; rounding errors grow with their size (the root mean
        square is 2 for tiny_llama and 46 for smollm2), so it is scaled by that of the failure-free run.
        """
        hidden = self.reference.hidden
        return self.evidence.tolerance * max(
            1.0, metrics.root_mean_square(hidden) if hidden is not None else 1.0
        )

    @cached_property
    def plain(self) -> Part:
        return self.evidence.part(self.scenario, PLAIN)
