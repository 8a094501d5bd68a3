"""When a late reply is suspicious."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swarmlab.recovery.latency import FORGET_S, KnownLatencies, ReplyLatency
from swarmlab.recovery.settings import RecoverySettings

SETTINGS = RecoverySettings()
seconds = st.floats(0.001, 60.0)
observed = st.lists(st.tuples(seconds, st.integers(0, 500)), max_size=20)


def latency_of(observations):
    latency = ReplyLatency(SETTINGS)
    for reply_s, n_further in observations:
        latency.observe(reply_s, n_further)
    return latency


@given(observed, st.integers(0, 2000), st.integers(0, 2000))
def test_more_tokens_never_have_less_time(observations, some, more):
    latency = latency_of(observations)
    some, more = sorted((some, more))
    assert latency.suspect_after_s(some) <= latency.suspect_after_s(more)
    assert latency.give_up_after_s(some) <= latency.give_up_after_s(more)


@given(observed, st.integers(0, 2000))
def test_a_server_is_probed_before_it_is_given_up(observations, n_further):
    latency = latency_of(observations)
    assert latency.suspect_after_s(n_further) >= SETTINGS.suspect_floor_s
    assert latency.give_up_after_s(n_further) >= latency.suspect_after_s(n_further) + SETTINGS.probe_s
    assert latency.give_up_after_s(n_further) >= SETTINGS.hard_floor_s


@given(seconds, st.lists(st.floats(1.0, SETTINGS.suspect_factor * 0.99), min_size=1, max_size=50))
def test_steady_steps_with_jitter_below_the_factor_raise_no_alarm(fastest_s, jitter):
    latency = ReplyLatency(SETTINGS)
    latency.observe(fastest_s, 0)
    for factor in jitter:
        reply_s = fastest_s * factor
        assert reply_s <= latency.suspect_after_s(0)
        latency.observe(reply_s, 0)


@given(st.floats(0.1, 10.0), st.floats(1.01, 100.0))
def test_a_step_far_beyond_the_usual_is_suspicious(usual_s, excess):
    latency = ReplyLatency(SETTINGS)
    for _ in range(20):
        latency.observe(usual_s, 0)
    assert max(
        SETTINGS.suspect_floor_s, SETTINGS.suspect_factor * usual_s
    ) * excess > latency.suspect_after_s(0)


def test_the_first_reply_has_a_bound_of_its_own():
    latency = ReplyLatency(SETTINGS)
    assert latency.step_s is None
    assert latency.suspect_after_s(0) == SETTINGS.first_reply_s
    assert latency.suspect_after_s(100) == pytest.approx(SETTINGS.first_reply_s + 100 * SETTINGS.token_s)


@given(st.floats(0.001, 0.5), st.floats(0.0001, 0.5), st.integers(1, 1000))
def test_a_prefill_teaches_the_rate_of_a_replay(step_s, token_s, n_further):
    assume(n_further * token_s > 0.01)
    assume(token_s <= step_s)  # in a batch a token is never dearer than alone
    latency = ReplyLatency(SETTINGS)
    latency.observe(step_s, 0)
    reply_s = step_s + n_further * token_s
    latency.observe(reply_s, n_further)
    assert latency.give_up_after_s(n_further) >= reply_s
    assert latency.suspect_after_s(n_further) >= min(
        reply_s, SETTINGS.hard_max_s
    )  # a probe earlier does no harm


@given(observed)
def test_a_copy_is_equal_and_independent(observations):
    latency = latency_of(observations)
    twin = latency.copy()
    before = latency.suspect_after_s(50)
    assert twin.suspect_after_s(50) == before
    twin.observe(60.0, 0)
    assert latency.suspect_after_s(50) == before


def test_a_stuck_server_is_given_up_in_bounded_time_however_slow_its_steps_were():
    assert latency_of([(5.0, 0)] * 10).give_up_after_s(0) == SETTINGS.hard_max_s
    # unless that is less than what is merely suspicious
    assert (
        latency_of([(15.0, 0)] * 10).give_up_after_s(0) == SETTINGS.suspect_factor * 15.0 + SETTINGS.probe_s
    )


@pytest.mark.parametrize("earlier", [[], [(0.02, 0)]])
def test_a_pause_in_a_short_request_does_not_teach_patience_with_a_hung_server(earlier):
    latency = latency_of([*earlier, (15.0, 1)])
    assert latency.suspect_after_s(2) <= SETTINGS.first_reply_s + SETTINGS.hard_max_s + 1
    if earlier:
        assert latency.suspect_after_s(2) < 2
        assert latency.give_up_after_s(2) < SETTINGS.hard_floor_s + 2


def test_many_short_requests_do_not_make_a_long_replay_look_stuck():
    latency = ReplyLatency(SETTINGS)
    latency.observe(0.1, 0)
    for _ in range(50):
        latency.observe(0.1, 1)  # a second token costs nothing measurable
    assert latency.give_up_after_s(1000) >= SETTINGS.hard_floor_s + 1000 * SETTINGS.token_s


def test_after_each_server_that_was_slow_but_there_the_next_has_more_time_until_one_answers():
    latency = ReplyLatency(SETTINGS)
    at_first_s = patience_s = latency.give_up_after_s(100)
    for _ in range(3):
        latency.gave_up()
        assert latency.give_up_after_s(100) > patience_s
        patience_s = latency.give_up_after_s(100)
    for _ in range(100):
        latency.gave_up()
    assert latency.give_up_after_s(0) <= SETTINGS.hard_max_s, "a stuck server is given up in bounded time"
    latency.observe(0.1, 0)
    assert latency.give_up_after_s(100) == at_first_s


def test_the_next_server_has_as_much_time_whatever_is_known_of_it():
    known, fast, asked = KnownLatencies(), latency_of([(0.01, 0)]), ReplyLatency(SETTINGS)
    known.observed("fast", fast, 0.0)
    asked.gave_up()
    for peer in ("fast", "unknown"):
        assert known.to_begin_with(peer, asked, 0.0).give_up_after_s(0) > fast.give_up_after_s(0)
    begun = known.to_begin_with("fast", ReplyLatency(SETTINGS), 0.0)
    assert begun.give_up_after_s(0) == fast.give_up_after_s(0)


def knowing(**step_s: float) -> KnownLatencies:
    known = KnownLatencies()
    for peer, seconds_ in step_s.items():
        known.observed(peer, latency_of([(seconds_, 0)]), 0.0)
    return known


def suspected_after_s(known: KnownLatencies, peer: str, now_s: float = 0.0) -> float:
    return known.to_begin_with(peer, ReplyLatency(SETTINGS), now_s).suspect_after_s(0)


def test_one_slow_server_does_not_make_the_client_wait_longer_for_others():
    assert suspected_after_s(knowing(slow=2.0), "other") == SETTINGS.first_reply_s
    known = knowing(slow=2.0, usual=0.1, fast=0.01)
    assert suspected_after_s(known, "other") == SETTINGS.suspect_factor * 0.1
    assert suspected_after_s(known, "slow") == SETTINGS.suspect_factor * 2.0, "it was slow itself"


@given(st.lists(seconds, max_size=9))
def test_a_server_that_nobody_knows_is_probed_no_later_than_a_first_one(step_s):
    known = knowing(**{f"p{i}": one for i, one in enumerate(step_s)})
    assert suspected_after_s(known, "other") <= SETTINGS.first_reply_s


def test_what_was_seen_of_a_server_is_forgotten_after_a_while():
    known = knowing(slow=2.0, fast=0.01)
    known.observed("fast", latency_of([(0.01, 0)]), FORGET_S)
    assert suspected_after_s(known, "slow", FORGET_S) == SETTINGS.suspect_factor * 2.0
    assert suspected_after_s(known, "slow", FORGET_S + 1) == SETTINGS.suspect_floor_s
    assert len(known) == 1
