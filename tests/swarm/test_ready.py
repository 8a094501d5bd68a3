"""Predicates with deadlines."""

from __future__ import annotations

import threading

import pytest

from swarmlab.swarm import ready
from swarmlab.swarm.bootstrap import view_from_json
from swarmlab.swarm.ports import PORTS, free_ports
from swarmlab.swarm.ready import log_tail, state_of, wait_for
from swarmlab.types import Intent, ServerRecord, ServerState, Span, SwarmView


def test_a_predicate_is_asked_until_it_holds():
    answers = iter([None, 0, "", "yes", "never asked"])
    wake = threading.Event()
    assert wait_for(lambda: (wake.set(), next(answers))[1], 60, "an answer", wake) == "yes"
    assert next(answers) == "never asked"


def test_a_deadline_says_what_was_waited_for():
    with pytest.raises(TimeoutError, match=r"not within 0\.0 s: the moon"):
        wait_for(lambda: None, 0, "the moon")


def test_a_predicate_is_asked_at_least_once():
    assert wait_for(lambda: 1, 0, "anything") == 1


def test_who_knows_of_a_change_wakes_the_waiter(monkeypatch):
    monkeypatch.setattr(ready, "POLL_S", 3600)
    wake, asked, happened = threading.Event(), threading.Event(), []

    def predicate():
        asked.set()
        return happened

    def change():
        asked.wait(10)
        happened.append(1)
        wake.set()

    thread = threading.Thread(target=change)
    thread.start()
    assert wait_for(predicate, 7200, "a change", wake) == [1]
    thread.join()


def test_state_of_a_server_with_other_blocks_is_unknown():
    record = ServerRecord("p", Span(0, 4), 1.0, ServerState.ONLINE)
    view = SwarmView(8, (record,))
    assert state_of(view, "p", Span(0, 4)) is ServerState.ONLINE
    assert state_of(view, "p", None) is ServerState.ONLINE
    assert state_of(view, "p", Span(0, 5)) is None
    assert state_of(view, "q", None) is None


def test_log_tail(tmp_path):
    log = tmp_path / "log"
    assert "no log" in log_tail(log)
    log.write_bytes(b"")
    assert "empty" in log_tail(log)
    log.write_bytes(b"one\ntwo\xff\nthree\n")
    assert log_tail(log, 2) == "    two\ufffd\n    three"


def test_free_ports_are_distinct_outside_what_the_system_gives_away_and_not_taken():
    ports = free_ports(20, taken=set())
    assert len(set(ports)) == 20
    assert set(ports) <= set(PORTS)
    assert not set(free_ports(20, taken=set(PORTS) - set(ports))) - set(ports)


def test_a_view_is_read_from_what_the_bootstrap_node_writes():
    data = {
        "n_blocks": 4,
        "seen_at_s": 5.0,
        "servers": [
            {
                "peer_id": "p", "span": [1, 3], "throughput_tps": 2.0, "state": "joining", "inference_tps": None,
                "cache_tokens_left": 7, "expires_at_s": 9.0, "next_pings_s": {"q": 0.5},
                "intent": {"span": [2, 4], "announced_at_s": 3.5},
            }
        ],
    }  # fmt: skip
    view = view_from_json(data)
    assert view.servers == (
        ServerRecord(
            "p", Span(1, 3), 2.0, ServerState.JOINING, None, 7, 9.0, {"q": 0.5}, Intent(Span(2, 4), 3.5)
        ),
    )
    assert (view.n_blocks, view.seen_at_s) == (4, 5.0)
