"""The nemesis and the clients of a soak against a swarm that is played."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.channel import ChannelClosed
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.faults.nemesis import NemesisSettings
from swarmlab.scenarios.registry import build
from swarmlab.scenarios.soak_client import SoakClient
from swarmlab.scenarios.soak_nemesis import Nemesis
from swarmlab.settings import load
from swarmlab.types import Span
from swarmlab.workload.requests import Bounds

FAST = NemesisSettings(
    failures_per_minute=6000,
    slowdowns_per_minute=6000,
    stop_share=0.5,
    away_s=(0.01, 0.05),
    pause_s=(0.01, 0.02),
)
SPANS = {"a1": Span(0, 8), "a2": Span(0, 8), "b1": Span(8, 16), "b2": Span(8, 16), "w": Span(4, 12)}
ENOUGH_S = 30


class PlayedSwarm:
    """Servers whose processes are words; notes whenever a block had no holder."""

    def __init__(self, *, returns=True):
        self.servers = {
            name: SimpleNamespace(span=span, peer_id=f"Q{name}", pgid=number)
            for number, (name, span) in enumerate(SPANS.items(), start=1)
        }
        self.state = dict.fromkeys(SPANS, "running")
        self.returns, self.lock, self.holes = returns, threading.Lock(), []

    def _set(self, name, state):
        with self.lock:
            self.state[name] = state
            held = {block for one, span in SPANS.items() if self.state[one] == "running" for block in span}
            if len(held) < 16:
                self.holes.append(dict(self.state))
        return True

    def kill(self, name):
        return self._set(name, "dead")

    def stop(self, name):
        return self._set(name, "stopped")

    def cont(self, name):
        return self._set(name, "running")

    leave = kill

    def restart(self, name):
        self._set(name, "running" if self.returns else "dead")

    def answers(self, name, _timeout_s):
        return self.state[name] == "running"

    def wait_ready(self, names, _deadline_s):
        for name in names:
            if self.state[name] != "running":
                raise SwarmFailed(f"{name} does not come back")

    def group_states(self, name, pgid):
        return {"running": {pgid: "sleeping"}, "stopped": {pgid: "stopped"}, "dead": {}}[self.state[name]]


def played(**options) -> Any:
    return PlayedSwarm(**options)


def run_until(nemesis, enough):
    nemesis.start()
    done = threading.Event()
    for _ in range(ENOUGH_S * 100):
        if enough():
            break
        done.wait(0.01)
    else:
        pytest.fail("the nemesis did too little")


def test_faults_are_confirmed_and_undone_and_never_make_a_hole():
    swarm, rows = played(), []
    nemesis = Nemesis(swarm, FAST, 0, rows.append)
    run_until(nemesis, lambda: nemesis.failures >= 30)
    nemesis.end(heal=True)
    assert set(swarm.state.values()) == {"running"}
    assert swarm.holes == []
    assert all(row["ok"] for row in rows)
    stages = [
        [row["stage"] for row in rows].count(stage) for stage in ("setup", "confirm", "heal", "cleanup")
    ]
    assert len(set(stages)) == 1
    assert {row["fault"] for row in rows} == {"kill", "stop", "pause"}
    assert len({row["target"] for row in rows}) == len(SPANS)


def test_asked_for_outages_it_makes_holes():
    swarm = played()
    wild = NemesisSettings(**{**vars(FAST), "away_s": (0.2, 0.4), "allow_outage": True})
    nemesis = Nemesis(swarm, wild, 0, lambda _: None)
    run_until(nemesis, lambda: swarm.holes)
    nemesis.end(heal=True)
    assert set(swarm.state.values()) == {"running"}


def test_a_server_that_does_not_come_back_ends_the_soak():
    swarm = played(returns=False)
    nemesis = Nemesis(swarm, FAST, 0, lambda _: None)
    run_until(nemesis, lambda: nemesis.broken)
    with pytest.raises(SwarmFailed, match="does not come back"):
        nemesis.end(heal=True)


class PlayedChild:
    """A client process that says what it is told to, then dies, or falls silent."""

    def __init__(self, messages, *, silent=False):
        self.messages, self.silent, self.sent = list(messages), silent, []

    def channel(self, _deadline_s):
        return self

    def recv(self, _deadline_s):
        if self.messages:
            return {"at_s": 1.0, **self.messages.pop(0)}
        raise TimeoutError("no message") if self.silent else ChannelClosed("the other end closed")

    def send(self, message):
        self.sent.append(message)

    def close(self):
        pass


def result(session, outcome="identical", tokens_wrong=0):
    return {"event": "session", "session": session, "outcome": outcome, "tokens_wrong": tokens_wrong}


def soak_client(children, until):
    """Run a client whose processes are ``children``; it stops when the last has been used."""
    rows, ended = [], []
    left = list(children)

    def spawn(_kind, _name, _args):
        child = left.pop(0)
        if not left:
            client.until_s = until
        return child

    client = SoakClient(
        swarm=SimpleNamespace(spawn=spawn, kill_child=lambda _: True),  # pyright: ignore[reportArgumentType]
        arm="swarmlab", name="c", number=3, args={}, bounds=Bounds((5, 9), (2, 4)), seed=0,
        history=SimpleNamespace(write=lambda kind, arm, **row: rows.append((kind, arm, row))),  # pyright: ignore[reportArgumentType]
        until_s=float("inf"), deadline_s=1.0, on_end=ended.append,
    )  # fmt: skip
    client.start().join(ENOUGH_S)
    assert ended == [client]
    return client, rows


def test_a_client_gets_sessions_until_the_time_is_over():
    child = PlayedChild([{"event": "next"}, {"event": "next"}, {"event": "done"}])
    client, rows = soak_client([child], until=0.0)
    assert child.sent == [{"stop": True}, {"stop": True}]
    assert (client.sessions, rows) == (0, [])


def test_what_a_client_says_is_recorded_with_what_it_was_asked():
    told = {"session": 0, "token": 3, "cause": "broken", "replacements": ["r"], "attempts": ["t"]}
    said = [{"event": "next"}, {"event": "failover", **told}, result(0, tokens_wrong=2), {"event": "done"}]
    child = PlayedChild(said)
    client, rows = soak_client([child, PlayedChild([{"event": "done"}])], until=0.0)
    (kind, arm, row), (last_kind, _, last) = rows
    assert (kind, arm, row["client"]) == ("failovers", "swarmlab", 3)
    assert (row["spans"], row["peers_tried"]) == (["r"], ["t"])
    assert (last_kind, last["outcome"], last["at_s"]) == ("sessions", "identical", 1.0)
    assert last["work"] == child.sent[0]["work"]["kind"]
    assert (client.sessions, client.tokens_wrong) == (1, 2)


def test_what_is_no_end_of_a_client_but_a_mistake_is_kept_for_the_run_to_raise():
    client, _ = soak_client([PlayedChild([{"event": "no such event"}])], until=0.0)
    assert client.failure is not None
    assert "no such event" in client.failure


@pytest.mark.parametrize(("silent", "outcome"), [(True, "hang"), (False, "lost")])
def test_a_client_that_dies_or_hangs_is_recorded_and_replaced(silent, outcome):
    second = PlayedChild([{"event": "next"}, {"event": "done"}])
    client, rows = soak_client([PlayedChild([{"event": "next"}], silent=silent), second], until=0.0)
    ((kind, _, row),) = rows
    assert (kind, row["outcome"], row["session"]) == ("sessions", outcome, 0)
    assert second.sent == [{"stop": True}]
    assert client.sessions == 1


def test_a_client_that_dies_before_its_first_session_is_told_of_in_the_log():
    _, rows = soak_client([PlayedChild([]), PlayedChild([{"event": "done"}])], until=0.0)
    assert [kind for kind, _, _ in rows] == ["logs"]


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("minutes=0", "minutes"),
        ("soak.clients=0", "soak.clients"),
        ("soak.stop_share=2", "soak.stop_share"),
        ("soak.aimed_share=-1", "soak.aimed_share"),
        ("soak.away_max_s=1", "soak.away_max_s"),
        ("soak.new_tokens_min=1", "soak.new_tokens_min"),
        ("soak.slowdowns_per_minute=-1", "soak.slowdowns_per_minute"),
        ("soak.new_tokens_max=4000", "swarm.attn_cache_tokens"),
        ("soak.clients=9", "swarm.attn_cache_tokens"),
        ("'arms=[restart]'", "arms"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(override, field, tmp_path):
    with pytest.raises(BadInput) as error:
        build(load(["+exp=failover_soak", f"models_dir={tmp_path}", override.strip("'")])[0])
    assert error.value.field == field


def test_a_soak_says_what_it_will_do(tmp_path):
    experiment = build(load(["+exp=failover_soak", f"models_dir={tmp_path}", "minutes=7"])[0])
    assert "for 7 minutes" in experiment.describe()
    assert experiment.parts == ["soak"]
