"""Verdicts over stored soaks: what holds, what fails, and what cannot support a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from swarmlab import check
from swarmlab.figures import draw_run
from swarmlab.record.rundir import RunDir

MINUTES = 0.75  # 5 failures are needed
N_FAILURES = 6


def fault_rows(number, stages=("setup", "inject", "confirm", "heal", "cleanup"), fault="kill", **changes):
    about = {"scenario": "soak", "fault": fault, "target": "a1", "peer": "Qa", "span_start": 0, "span_end": 5}
    return [
        {
            "at_s": 10.0 * number + index,
            **about,
            "stage": stage,
            "ok": True,
            "detail": "",
            "seconds": 3.0,
            **changes,
        }
        for index, stage in enumerate(stages)
    ]


def session_row(number, **changes):
    return {
        "scenario": "soak", "client": number % 2, "session": number // 2, "work": "greedy", "batch": 1,
        "prompt_tokens": 9, "new_tokens": 9, "outcome": "identical", "steps": 100, "tokens": 100,
        "tokens_expected": 100, "tokens_wrong": 0, "max_abs_diff": 1e-5, "allowed_diff": 3e-4, "recoveries": 1,
        "stalls": [0.5], "step_s_median": 0.02, "step_s_max": 0.5, "elapsed_s": 3.0, "history_bytes": 1000,
        "rss_bytes": 100, "fds": 9, "threads": 5, "pid": number % 2, "error": None, **changes,
    }  # fmt: skip


def failover_row(**changes):
    failed = [{"start": 0, "end": 5, "peer": "Qa", "cause": "hung"}]
    return {
        "scenario": "soak", "client": 0, "session": 0, "token": 5, "cause": "hung", "detect_s": 0.5,
        "reroute_s": 0.0, "connect_s": 0.0, "replay_s": 0.1, "total_s": 0.6, "failed": failed, **changes,
    }  # fmt: skip


@pytest.fixture
def judged(tmp_path):
    """Store a soak and judge it; the arguments say in what it differs from one that holds."""

    def judged(
        *, faults=(), sessions=(), failovers=(), n_failures=N_FAILURES, leaks=None, status: Any = "complete"
    ):
        run_dir = RunDir.create(
            tmp_path, "failover_soak", config={"minutes": MINUTES}, argv=[], overrides=[], seed=0, world="real",
            arms=["swarmlab"], model={"id": "tiny", "hash": ""},
        )  # fmt: skip
        start_s = run_dir.history.start_s

        def write(kind, arm, row):
            row = {"at_s": 30.0, **row}
            run_dir.history.write(kind, arm, **{**row, "at_s": start_s + row["at_s"]})

        for row in [one for number in range(n_failures) for one in fault_rows(number)] + list(faults):
            write("faults", "", row)
        for row in [session_row(number) for number in range(20)] + list(sessions):
            write("sessions", "swarmlab", row)
        write(
            "steps", "swarmlab", {"scenario": "soak", "client": 0, "session": 0, "token": 5, "seconds": 0.5}
        )
        for row in [failover_row(at_s=11.5), *failovers]:
            write("failovers", "swarmlab", row)
        for moment in ("start", "end", "after"):
            counts = {"processes": 0, "sockets": 0, "files": 0, **(leaks or {}).get(moment, {})}
            write("leaks", "", {"scenario": "soak", "moment": moment, **counts})
        run_dir.finish(status)
        return check.judge(run_dir.path)

    return judged


def test_a_sound_soak_holds(judged):
    summary = judged()
    assert summary.verdict == "holds", summary.reasons
    assert summary.arms["swarmlab"]["failures_injected"] == N_FAILURES
    assert summary.scenarios == {"soak": summary.arms}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sessions": [session_row(20, outcome="wrong", tokens_wrong=1)]}, "tokens_wrong: 1"),
        ({"sessions": [session_row(20, outcome="wrong")]}, "sessions_not_identical: 1"),
        ({"sessions": [session_row(20, outcome="exception", error="boom")]}, "sessions_not_identical: 1"),
        ({"leaks": {"end": {"processes": 1}}}, "leaked_processes: 1"),
        ({"leaks": {"after": {"processes": 1}}}, "leaked_processes: 1"),
        ({"leaks": {"end": {"sockets": 4}}}, "leaked_sockets: 4"),
        ({"failovers": [failover_row(at_s=8.0)] * 3}, "false_alarms_per_1000_steps: 1.5"),
        ({"sessions": [session_row(n, rss_bytes=2e9) for n in range(20, 28)]}, "client_rss_growth_bytes"),
    ],
)
def test_what_must_not_be_fails(judged, changes, reason):
    summary = judged(**changes)
    assert summary.verdict == "fails"
    assert any(reason in line for line in summary.reasons), summary.reasons


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "interrupted"}, "its status is interrupted"),
        ({"n_failures": 4}, "4 failures confirmed of 5 needed"),
        ({"faults": fault_rows(7, stages=("setup", "inject"))}, "7 ordered, 6 confirmed"),
        ({"faults": fault_rows(7, stages=("setup", "inject", "confirm"))}, "7 confirmed, 6 undone"),
        ({"faults": fault_rows(7, stages=("heal",), ok=False, detail="gone")}, "at heal: gone"),
    ],
)
def test_a_nemesis_that_cannot_be_trusted_makes_it_unknown(judged, changes, reason):
    summary = judged(**changes)
    assert summary.verdict == "unknown"
    assert any(reason in line for line in summary.reasons), summary.reasons


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (session_row(24), "client 0 / sessions: 11 sessions, numbered from 0 to 12; missing: 10, 11"),
        (session_row(6), "client 0 / sessions: 11 sessions, numbered from 0 to 9; twice: 3"),
    ],
)
def test_a_session_that_is_missing_or_there_twice_makes_it_unknown(judged, row, reason):
    """It could have been the one with wrong tokens."""
    summary = judged(sessions=[row])
    assert summary.verdict == "unknown"
    assert any(reason in line for line in summary.reasons), summary.reasons


def test_a_fault_that_was_never_ordered_does_no_harm(judged):
    assert judged(faults=fault_rows(7, stages=("setup",), ok=False, detail="busy")).verdict == "holds"


def test_slowdowns_are_no_failures(judged):
    slow = [row for number in range(9) for row in fault_rows(number, fault="pause")]
    summary = judged(n_failures=0, faults=slow)
    assert summary.verdict == "unknown"
    assert summary.arms["swarmlab"]["slowdowns"] == 9


def test_the_table_and_the_figure_show_it(judged, tmp_path):
    summary = judged(faults=fault_rows(8, fault="stop") + fault_rows(9, fault="pause"))
    console = Console(record=True, width=100)
    check.show(summary, console)
    shown = console.export_text()
    for words in ("6 / 1 / 1", "tokens wrong", "verdict: holds"):
        assert words in shown
    (run_dir,) = (path for path in (tmp_path / "failover_soak").iterdir() if not path.is_symlink())
    assert [path.suffix for path in draw_run(run_dir)] == [".png", ".pdf"]
