"""Numbers of a soak from hand-written records."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmlab.analysis.plots.soak import draw_client
from swarmlab.analysis.soak import Evidence, away, false_alarms, growth, leaked, measure
from swarmlab.analysis.soak_compare import Trace, compare, compare_forced
from swarmlab.analysis.soak_sessions import is_identical, tokens_wrong, wrong_by_ids
from swarmlab.analysis.stalls import measure_stalls, waits


def trace(n_steps=4, rows=2, seed=0):
    draw = np.random.default_rng(seed)
    hidden = [draw.normal(size=(rows, 1, 8)).astype(np.float32) for _ in range(n_steps)]
    return Trace(
        hidden, [draw.integers(0, 99, rows) for _ in range(n_steps)], draw.integers(0, 99, (rows, 9))
    )


def test_equal_sessions_are_identical():
    found = compare(trace(), trace(), 3e-4)
    assert found["identical"]
    assert (found["tokens"], found["tokens_wrong"], found["max_abs_diff"]) == (8, 0, 0.0)


def test_one_wrong_token_is_counted():
    other = trace()
    other.token_ids[2] = other.token_ids[2] + np.array([0, 1])
    found = compare(other, trace(), 3e-4)
    assert (found["identical"], found["tokens_wrong"]) == (False, 1)


def test_wrong_sequences_are_counted_though_every_step_is_right():
    other = trace()
    assert other.sequences is not None
    other.sequences += 1
    assert compare(other, trace(), 3e-4)["tokens_wrong"] == 18


def test_right_tokens_do_not_excuse_wrong_hidden_states():
    other = trace()
    other.hidden[1] = other.hidden[1] + 0.1
    found = compare(other, trace(), 3e-4)
    assert (found["identical"], found["tokens_wrong"]) == (False, 0)
    assert found["max_abs_diff"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_wrong(value):
    other = trace()
    other.hidden[1] = np.full_like(other.hidden[1], value)
    assert not compare(other, trace(), 3e-4)["identical"]


def test_lost_rows_are_wrong_and_not_comparable():
    other = trace()
    other.hidden[3], other.token_ids[3] = other.hidden[3][:1], other.token_ids[3][:1]
    found = compare(other, trace(), 3e-4)
    assert (found["identical"], found["tokens_wrong"], found["max_abs_diff"]) == (False, 2, None)


def test_a_session_that_ended_early_is_right_so_far_but_not_identical():
    other = trace()
    del other.hidden[2:], other.token_ids[2:]
    other.sequences = None
    found = compare(other, trace(), 3e-4)
    assert (found["identical"], found["tokens_wrong"], found["tokens"]) == (False, 0, 4)


def test_a_session_without_a_step_is_not_identical():
    found = compare(Trace([], [], None), trace(), 3e-4)
    assert (found["identical"], found["max_abs_diff"]) == (False, None)


def test_a_tie_is_no_wrong_token_and_a_text_that_differs_without_one_is():
    text, forced = trace(), trace()
    text.sequences = None
    forced.token_ids[2] = forced.token_ids[2] + np.array(
        [0, 1]
    )  # on the same inputs, with the same hidden states
    found = compare_forced(text, forced, 3e-4)
    assert (found["identical"], found["ties"], found["tokens_wrong"]) == (True, 1, 0)
    found = compare_forced(text, trace(), 3e-4)
    assert (found["identical"], found["ties"]) == (False, 0)


def test_wrong_hidden_states_are_no_tie():
    text, forced = trace(), trace()
    forced.token_ids[2] = forced.token_ids[2] + np.array([0, 1])
    text.hidden[3] = text.hidden[3] + 0.1
    found = compare_forced(text, forced, 3e-4)
    assert (found["identical"], found["ties"], found["tokens_wrong"]) == (False, 0, 1)


def fault(t, kind, stage, peer="Qa", ok=True):
    return {"t": t, "arm": "", "fault": kind, "target": peer[1:], "peer": peer, "stage": stage, "ok": ok}


def failover(t, cause, peer="Qa", total_s=1.0):
    failed = [{"start": 0, "end": 8, "peer": peer, "cause": cause}]
    return {"t": t, "arm": "swarmlab", "session": 0, "client": 0, "total_s": total_s, "failed": failed}


STOPPED = [fault(10, "stop", stage) for stage in ("setup", "inject", "confirm")] + [fault(20, "stop", "heal")]


def test_a_server_is_away_until_it_serves_again():
    assert away(STOPPED) == {"Qa": [(10, 20)]}
    assert away(STOPPED[:3]) == {"Qa": [(10, float("inf"))]}
    refused = [*STOPPED[:3], fault(20, "stop", "heal", ok=False), fault(25, "stop", "cleanup")]
    assert away(refused) == {"Qa": [(10, 25)]}
    assert away([fault(10, "pause", "setup"), fault(10, "pause", "confirm")]) == {}


@pytest.mark.parametrize(
    ("row", "n_alarms"),
    [
        (failover(12, "hung"), 0),
        (failover(20.5, "hung"), 0),  # asked while it was stopped
        (failover(22, "hung"), 1),  # long after it was continued
        (failover(9.5, "stuck"), 1),  # before it was stopped
        (failover(12, "hung", peer="Qb"), 1),  # another one was stopped
        (failover(22, "broken"), 0),  # not the rule that is looked at
        (failover(22, "refused"), 0),
    ],
)
def test_a_false_alarm_is_a_late_reply_of_a_server_that_was_there(row, n_alarms):
    assert len(false_alarms([row], STOPPED)) == n_alarms


def test_a_pause_excuses_nothing():
    paused = [fault(10, "pause", stage) for stage in ("setup", "inject", "confirm", "heal")]
    assert len(false_alarms([failover(10.5, "hung")], paused)) == 1


def session(t, *, client=0, pid=1, outcome="identical", **values):
    return {
        "t": t, "arm": "swarmlab", "client": client, "pid": pid, "outcome": outcome, "steps": 100, "tokens": 200,
        "tokens_wrong": 0, "max_abs_diff": 1e-5, "recoveries": 0, "stalls": [], "step_s_median": 0.02,
        "elapsed_s": 2.0, "history_bytes": 1000, "rss_bytes": 100, "fds": 9, "threads": 5, **values,
    }  # fmt: skip


def test_growth_leaves_out_the_warm_up_and_takes_the_worst_client():
    def rows(client, sizes):
        return [session(t, client=client, rss_bytes=size) for t, size in enumerate(sizes)]

    warm = [0, 0, 100, 100, 100, 100, 100, 100]
    assert growth(rows(0, warm), "rss_bytes") == 0
    assert growth(rows(0, warm) + rows(1, [0, 0, 100, 100, 200, 300, 400, 500]), "rss_bytes") == 350
    assert growth(rows(0, warm[:3]), "rss_bytes") is None


def test_a_new_process_is_no_growth_of_the_one_before():
    rows = [session(t, pid=t // 8, rss_bytes=100 * (1 + t // 8)) for t in range(16)]
    assert growth(rows, "rss_bytes") == 0


def count(moment, processes=0, sockets=0, files=0):
    return {"arm": "", "moment": moment, "processes": processes, "sockets": sockets, "files": files}


def test_leaks_are_what_is_there_more_at_the_end_and_what_stays():
    start, end, after = count("start", 27, 49, 9), count("end", 28, 45, 9), count("after", 0, 2, 0)
    assert leaked([start, end, after]) == {"leaked_processes": 1, "leaked_sockets": 2, "leaked_files": 0}
    assert leaked([start, end])["leaked_processes"] is None


def step(token, seconds, **values):
    row = {"arm": "swarmlab", "client": 0, "session": 0, "token": token, "seconds": seconds, "retries": 0}
    return {**row, **values}


def test_a_wait_is_for_a_session_that_opens_or_for_a_late_reply_but_not_for_a_server_that_was_lost():
    steps = [
        step(0, 6.0),
        step(0, 0.1, session=1),
        step(3, 2.0),
        step(4, 1.5),
        step(5, 0.4),
        step(6, 3.0, retries=1),
    ]
    met = {3: "unreachable", 4: "hung"}
    failovers = [{"client": 0, "session": 0, "token": token, "cause": cause} for token, cause in met.items()]
    assert waits(steps, failovers) == {"opening": [6.0, 2.0], "late": [0.4]}
    assert waits([step(3, 2.0, client=1)], failovers) == {"opening": [], "late": [2.0]}


def test_a_soak_without_stalls_has_no_seconds_of_them():
    found = measure_stalls([], {"opening": [], "late": []})
    assert (found["all_stalls"], found["all_stall_s_p99"]) == (0, None)


RIGHT = {
    "outcome": "identical", "tokens_wrong": 0, "max_abs_diff": 1e-5, "allowed_diff": 3e-4,
    "token_ids": [[3, 4], [5, 6]], "reference_ids": [[3, 4], [5, 6]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "wrong", "identical"),
    [
        ({}, 0, True),
        ({"token_ids": [[3, 4], [5, 7]]}, 1, False),
        ({"token_ids": [[3, 4], [5]]}, 2, False),
        ({"token_ids": [[3, 4]]}, 0, False),
        ({"token_ids": [[3, 4], [5, 7]], "ties": 1}, 0, True),
        ({"tokens_wrong": 2}, 2, False),
        ({"max_abs_diff": 1e-2}, 0, False),
        ({"outcome": "exception", "tokens_wrong": None, "token_ids": [[3, 4]], "max_abs_diff": None}, 0, False),
    ],
)  # fmt: skip
def test_a_session_is_judged_by_its_ids_and_not_by_what_its_client_says(changes, wrong, identical):
    row = {**RIGHT, **changes}
    assert (tokens_wrong(row), is_identical(row)) == (wrong, identical)


def test_of_a_record_without_ids_the_count_of_the_client_is_all_there_is():
    row = {name: value for name, value in RIGHT.items() if not name.endswith("_ids")}
    assert wrong_by_ids(row) is None
    assert (tokens_wrong(row), is_identical(row)) == (0, True)


def test_wrong_ids_that_a_client_does_not_count_make_a_soak_wrong():
    history = {"sessions": [session(1), {**session(2), **RIGHT, "token_ids": [[3, 4], [5, 7]]}]}
    found = measure(Evidence(history))["swarmlab"]
    assert (found["tokens_wrong"], found["sessions_not_identical"]) == (1, 1)


def test_all_of_it_together():
    history = {
        "sessions": [
            session(1, recoveries=2, stalls=[0.5, 1.5]),
            session(2, outcome="wrong", tokens_wrong=3, recoveries=1, stalls=[1.0]),
            session(3, outcome="exception", recoveries=4),
        ],
        "failovers": [
            {**failover(t, "hung"), "token": token, "cause": "hung"} for t, token in ((12, 1), (50, 2))
        ],
        "steps": [step(0, 2.5), step(1, 0.5), step(2, 1.5), step(3, 0.3), step(4, 0.1)],
        "faults": STOPPED,
        "leaks": [count("start"), count("end"), count("after")],
    }
    found = measure(Evidence(history))["swarmlab"]
    assert (found["sessions"], found["sessions_not_identical"], found["tokens_wrong"]) == (3, 2, 3)
    assert (found["failures_survived"], found["sessions_with_failures"]) == (3, 2)
    assert (found["failures_injected"], found["stops"], found["kills"]) == (1, 1, 0)
    assert (found["stall_s_p50"], found["stall_s_max"], found["stalls"]) == (1.0, 1.5, 3)
    assert (found["opening_stalls"], found["opening_stall_s_max"]) == (1, 2.5)
    assert (found["late_stalls"], found["late_stall_s_max"]) == (1, 0.3)
    assert (found["all_stalls"], found["all_stall_s_p50"], found["all_stall_s_max"]) == (5, 1.0, 2.5)
    assert (found["false_alarms"], found["false_alarms_per_1000_steps"]) == (1, pytest.approx(1000 / 300))
    assert found["steps_per_s"] == 50


def test_the_longest_stall_does_not_touch_the_frame():
    history = {"sessions": [session(1)], "steps": [step(1, 0.01, t=1.0), step(2, 3.0, t=2.0)]}
    axes = Figure().subplots()
    draw_client(axes, Evidence(history), "swarmlab", 0)
    axes.get_ylim()  # limits are reckoned when somebody asks
    _, top = axes.transLimits.transform(axes.transScale.transform((0, 3.0)))
    assert top < 0.95, "of the height: a marker is a few percent of it"
