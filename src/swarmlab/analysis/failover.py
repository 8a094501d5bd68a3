"""What a failover run shows: every outcome is judged again from the stored tokens and hidden states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swarmlab.analysis import metrics
from swarmlab.analysis.stats import finite, median, quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarmlab.analysis.evidence import Evidence, Part

# Worst first: a silently wrong text is worse than one that never comes, and an error is at least said.
OUTCOMES = ("wrong", "hang", "exception", "identical")
ENDED_EARLY = ("hang", "exception")
STAGES = ("detect_s", "reroute_s", "connect_s", "replay_s")


@dataclass
class Session:
    """One arm in one scenario. Lists hold one number per failure.

    :param to_correct: None for a failure after which there was no right token
    """

    outcome: str | None
    why: str
    sessions: int
    failures: int
    tokens: int
    ids_identical: int
    ids_expected: int | None
    diff: float | None
    diff_plain: float | None
    to_correct: list[float | None]
    recoveries: list[float]
    floor_s: float | None
    stall_s: float | None
    stages: dict[str, list[float]]
    decode_seconds: list[float] = field(repr=False)
    error: str | None
    broken_input_cache: bool | None

    @property
    def over_floor(self) -> list[float]:
        return [seconds / self.floor_s for seconds in self.recoveries] if self.floor_s else []


def measure(evidence: Evidence) -> dict[str, dict[str, Session]]:
    """Scenario to arm to what happened, for each pair that left any row."""
    measured = {
        scenario: {arm: measure_part(evidence.part(scenario, arm)) for arm in evidence.arms(scenario)}
        for scenario in evidence.scenarios()
    }
    return {scenario: arms for scenario, arms in measured.items() if arms}


def measure_part(part: Part) -> Session:
    """Judge and time one arm in one scenario.

    Its recovery is what the arm measured (``failovers``) or else the time from the fault to the end of the first
    correct step after it. The latter is kept for every arm as ``to_correct``: only it compares arms by one clock.

    Only failures that the client met are timed (:mod:`swarmlab.analysis.failures_met`). A right token needs right
    hidden states, too. They are saved for the session as a whole, so a session whose tokens or hidden states are not
    right to where it ended has no right token after any failure: one that comes by chance heals nothing.
    """
    reference = part.reference.tokens
    stayed_right = stays_right(part)
    to_correct = [failure.to_correct_s if stayed_right else None for failure in part.failures]
    failovers = metrics.recoveries(part.rows("failovers"))
    floors = part.rows("floors") or part.evidence.rows("floors", part.scenario)
    outcome, why = judge_outcome(part)
    return Session(
        outcome=outcome,
        why=why,
        sessions=len(part.rows("outcomes")),
        failures=len(part.confirmed),
        tokens=len(part.tokens),
        ids_identical=metrics.identical_tokens(part.tokens, reference),
        ids_expected=sum(len(ids) for ids in reference) or None,
        diff=_diff(part, part.reference),
        diff_plain=_diff(part, part.plain),
        to_correct=to_correct,
        recoveries=finite(row["total_s"] for row in failovers) if failovers else finite(to_correct),
        floor_s=metrics.floor_seconds(floors),
        stall_s=metrics.stall_seconds(part.steps, [failure.first for failure in part.failures]),
        stages={name: finite(row.get(name) for row in failovers) for name in STAGES},
        decode_seconds=finite(row["seconds"] for row in part.steps if row["phase"] == "decode"),
        error=part.outcome.get("error") if part.outcome else None,
        broken_input_cache=part.outcome.get("seen_broken_input_cache") if part.outcome else None,
    )


def judge_outcome(part: Part) -> tuple[str | None, str]:
    """Outcome and why. What an arm recorded of itself is believed only where it admits an exception or a hang."""
    if part.outcome is None:
        return None, "the arm left no outcome"
    if part.outcome["outcome"] in ENDED_EARLY:
        return part.outcome["outcome"], part.outcome.get("error") or part.outcome["outcome"]
    if not part.reference.tokens:
        return None, "the failure-free run left no tokens"
    if part.tokens != part.reference.tokens:
        right = metrics.identical_tokens(part.tokens, part.reference.tokens)
        return "wrong", f"{right} of {sum(map(len, part.reference.tokens))} tokens are right"
    return _judge_hidden(part)


def stays_right(part: Part) -> bool:
    """Whether everything that the session produced, up to where it ended, is shown to be right."""
    reference, diff = part.reference.tokens, _diff(part, part.reference)
    known = bool(reference) and diff is not None and diff <= part.allowed_diff
    return known and part.tokens == reference[: len(part.tokens)]


def _judge_hidden(part: Part) -> tuple[str | None, str]:
    if part.hidden is None or part.reference.hidden is None:
        return None, f"{'the arm' if part.hidden is None else 'the failure-free run'} saved no hidden states"
    if part.hidden.shape != part.reference.hidden.shape:
        return "wrong", f"hidden states are {part.hidden.shape}, not {part.reference.hidden.shape}"
    diff = _diff(part, part.reference)
    if diff is None:
        return None, "the hidden states cannot be compared"
    if diff > part.allowed_diff:
        return "wrong", f"hidden states differ by {diff:.2g}, more than {part.allowed_diff:.2g}"
    return "identical", f"all tokens, hidden states within {diff:.2g}"


def summarise(measured: Mapping[str, Mapping[str, Session]]) -> dict[str, Any]:
    """``arms`` and ``scenarios`` of ``summary.json``."""
    by_arm: dict[str, list[Session]] = {}
    for arms in measured.values():
        for arm, session in arms.items():
            by_arm.setdefault(arm, []).append(session)
    return {
        "arms": {
            arm: {**metrics_of(sessions), "outcomes": dict(Counter(s.outcome or "unknown" for s in sessions))}
            for arm, sessions in by_arm.items()
        },
        "scenarios": {
            scenario: {arm: {**metrics_of([session]), **_told(session)} for arm, session in arms.items()}
            for scenario, arms in measured.items()
        },
    }


def metrics_of(sessions: Sequence[Session]) -> dict[str, Any]:
    """The metrics of one session, or of all sessions of an arm pooled."""
    recoveries = [seconds for session in sessions for seconds in session.recoveries]
    decode = [seconds for session in sessions for seconds in session.decode_seconds]
    stages = {
        name: median(seconds for session in sessions for seconds in session.stages[name]) for name in STAGES
    }
    return {
        "sessions": sum(session.sessions for session in sessions),
        "failures_injected": sum(session.failures for session in sessions),
        "outcome": worst([session.outcome for session in sessions]),
        "tokens_identical_ratio": _identical_ratio(sessions),
        "max_abs_diff": _largest(session.diff for session in sessions),
        "max_abs_diff_plain": _largest(session.diff_plain for session in sessions),
        "recovery_s_median": median(recoveries),
        "recovery_s_p95": quantile(recoveries, 0.95),
        "recovery_over_floor": median(ratio for session in sessions for ratio in session.over_floor),
        "fault_to_correct_s": _median_of_all(
            [seconds for session in sessions for seconds in session.to_correct]
        ),
        **stages,
        "floor_s": median(session.floor_s for session in sessions),
        "stall_s": _largest(session.stall_s for session in sessions),
        "steps_per_s": len(decode) / sum(decode) if sum(decode) > 0 else None,
    }


def worst(outcomes: Sequence[str | None]) -> str | None:
    """The worst outcome; ``identical`` only if every one is, so one that is not known leaves None."""
    found = next((name for name in OUTCOMES if name in outcomes), None)
    return None if found == "identical" and None in outcomes else found


def _told(session: Session) -> dict[str, Any]:
    return {
        "tokens": session.tokens,
        "why": session.why,
        "error": session.error,
        "seen_broken_input_cache": session.broken_input_cache,
    }


def _identical_ratio(sessions: Sequence[Session]) -> float | None:
    expected = [session.ids_expected for session in sessions]
    if not expected or None in expected:
        return None
    return sum(session.ids_identical for session in sessions) / sum(count for count in expected if count)


def _diff(part: Part, other: Part) -> float | None:
    if part.hidden is None or other.hidden is None:
        return None
    ended_early = part.outcome is not None and part.outcome["outcome"] in ENDED_EARLY
    return metrics.max_abs_diff(part.hidden, other.hidden, prefix=ended_early)


def _median_of_all(values: Sequence[float | None]) -> float | None:
    """None if one of them is None: a median of the others would hide what never came."""
    return None if None in values else median(values)


def _largest(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)
