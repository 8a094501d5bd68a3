"""Which faults a client met: handmade records with one right token per second."""

from __future__ import annotations

from swarmlab.analysis.failures_met import failures_met

REFERENCE = [(token,) for token in range(30)]


def steps(*at):
    """Step ``token`` ended at its time, and took half a second."""
    return [{"t": t, "token": token, "token_ids": [token], "seconds": 0.5} for token, t in at]


def fault(kind, target, t, token, *, ok=True, **more):
    about = {"fault": kind, "target": target, "at_token": token, "ok": ok, **more}
    return [{**about, "stage": "setup", "t": t}, {**about, "stage": "confirm", "t": t + 0.1}]


def seconds(faults, of_steps):
    return [
        None if one.to_correct_s is None else round(one.to_correct_s, 6)
        for one in failures_met(faults, of_steps, REFERENCE)
    ]


def test_a_server_that_left_before_the_client_asked_anybody_was_no_failure():
    """As in wider_replacement: its clock starts at the kill, however soon the prompt was done."""
    faults = [*fault("leave", "w", 1.0, 0), *fault("restart", "w", 8.0, 12), *fault("kill", "c", 10.0, 12)]
    assert seconds(faults, steps((0, 2.0), (11, 7.0), (12, 12.5))) == [2.5]
    assert seconds(faults, steps((0, 2.0), (11, 7.0))) == [None]  # raised after the kill


def test_a_server_that_died_while_the_prompt_was_on_its_way_was_one():
    assert seconds(fault("kill", "c", 1.7, 0), steps((0, 2.0))) == [0.3]


def test_servers_that_die_at_the_same_moment_are_one_failure_whose_clock_starts_at_the_first():
    faults = [*fault("kill", "a", 10.0, 12), *fault("kill", "b", 10.2, 12), *fault("kill", "c", 10.4, 12)]
    assert seconds(faults, steps((12, 13.0))) == [3.0]


def test_a_spare_that_a_recovery_needs_belongs_to_the_failure_before_it():
    faults = [*fault("kill", "c", 10.0, 12, in_chain=True), *fault("kill", "spare", 10.2, 12, in_chain=False)]
    assert seconds(faults, steps((12, 13.0))) == [3.0]


def test_a_spare_that_dies_while_nobody_misses_it_is_no_failure():
    faults = [*fault("kill", "spare", 5.0, 6, in_chain=False), *fault("kill", "c", 10.0, 12, in_chain=True)]
    assert seconds(faults, steps((6, 6.0), (12, 13.0))) == [3.0]


def test_failures_with_right_tokens_between_them_are_counted_apart():
    faults = [*fault("kill", "c", 10.0, 8), *fault("restart", "c", 14.0, 16), *fault("kill", "c", 20.0, 24)]
    assert seconds(faults, steps((8, 11.0), (16, 15.0), (24, 22.0))) == [1.0, 2.0]
    assert seconds(faults, steps((8, 11.0), (16, 15.0))) == [1.0, None]


def test_to_kill_a_stopped_server_that_was_replaced_already_hits_nobody():
    faults = [*fault("stop", "c", 10.0, 12), *fault("kill", "c", 12.0, 12)]
    assert seconds(faults, steps((12, 11.0), (13, 11.5), (14, 13.0))) == [1.0]
    assert seconds(faults, steps((12, 14.0))) == [4.0]  # not yet: the same failure


def test_a_server_that_was_healed_can_fail_again():
    healed = {"fault": "kill", "target": "c", "at_token": 8, "ok": True, "stage": "heal", "t": 14.0}
    faults = [*fault("kill", "c", 10.0, 8), healed, *fault("kill", "c", 20.0, 24)]
    assert seconds(faults, steps((8, 11.0), (24, 22.0))) == [1.0, 2.0]


def test_a_fault_that_was_not_confirmed_took_nobody_away():
    assert seconds(fault("kill", "c", 10.0, 12, ok=False), steps((12, 13.0))) == []


def test_a_fault_after_the_last_token_came_too_late_for_the_client():
    late = fault("kill", "c", 40.0, 20, in_chain=True)
    assert seconds(late, steps((28, 38.0), (29, 39.0))) == []
    assert seconds(late, steps((28, 38.0))) == [None], "that client had not come to its end"
