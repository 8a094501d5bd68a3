"""One client in one scenario, with the swarm, the client and the faults replaced by what a test says they do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.channel import ChannelClosed
from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed
from swarmlab.faults.schedule import Fault, FaultSpec
from swarmlab.scenarios import failover_faults
from swarmlab.scenarios.failover_arm import CHAIN_ATTEMPTS, ArmRun
from swarmlab.scenarios.failover_files import Scenario, Workload
from swarmlab.types import Span

SERVERS = {"a": Span(0, 8), "b": Span(8, 16), "c": Span(8, 16)}
KILL = FaultSpec(Fault.KILL, "last", before_token=1)
NEW_TOKENS = 3


def step(token, **more):
    phase = "prefill" if token == 0 else "decode"
    return {
        "event": "step", "token": token, "phase": phase, "seconds": 0.1, "token_ids": [token], "at_s": 1.0, **more,
    }  # fmt: skip


def at(*names, token=1, span=None):
    """A fault point of a client whose chain is these servers."""
    return {
        "event": "at",
        "token": token,
        "span": span,
        "request": 1,
        "chain": [{"peer": f"Qm{one}"} for one in names],
    }


def log(line):
    return {"event": "log", "level": "warning", "line": line, "at_s": 1.0}


DONE = {"event": "done", "text": None}


class FakeChannel:
    """A client that says its lines; an exception among them is raised where it stands, as by a real channel."""

    def __init__(self, lines):
        self.lines, self.sent = list(lines), []

    def recv(self, _deadline_s):
        line = self.lines.pop(0) if self.lines else ChannelClosed("the other end closed")
        if isinstance(line, Exception):
            raise line
        return line

    def send(self, message):
        self.sent.append(message)


class FakeChild:
    def __init__(self, lines):
        self.fake, self.closed = FakeChannel(lines), False

    def channel(self, _deadline_s):
        if self.fake.lines and self.fake.lines[0] == "never connects":
            raise TimeoutError("the process did not connect within 60.0 s")
        return self.fake

    def close(self):
        self.closed = True


class FakeSwarm:
    """Notes who is spawned and killed; each client says the next of the scripts."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.spawned, self.killed, self.children, self.looks = [], [], [], 0
        self.spec = SimpleNamespace(update_period_s=10.0)
        self.servers = {
            name: SimpleNamespace(name=name, peer_id=f"Qm{name}", span=span, pgid=1)
            for name, span in SERVERS.items()
        }

    def spawn(self, kind, name, args, *, on_gpu=False):
        assert not on_gpu
        assert not self.children or self.children[-1] in self.killed, "one client at a time"
        self.spawned.append((kind, name, args))
        self.children.append(FakeChild(self.scripts.pop(0)))
        return self.children[-1]

    def snapshot(self):
        """Every look finds records that are newer by one announcement."""
        self.looks += 1
        return SimpleNamespace(
            servers=[
                SimpleNamespace(peer_id=one.peer_id, expires_at_s=self.looks) for one in self.servers.values()
            ]
        )

    def kill_child(self, child):
        self.killed.append(child)
        return True


class FakeHistory:
    def __init__(self):
        self.rows = []

    def write(self, kind, arm, at_s=None, **fields):
        self.rows.append({"kind": kind, "arm": arm, "at_s": at_s, **fields})

    def of(self, kind):
        return [row for row in self.rows if row["kind"] == kind]


class FakeFault:
    """A fault that fails in the stages that ``failing`` names."""

    failing: tuple[str, ...] = ()

    def __init__(self, fault, name, *_, **__):
        self.fault, self.name = fault, name

    def _do(self, stage):
        if stage in self.failing:
            raise FaultFailed(f"{stage} did not work")
        return f"{stage} done"

    def __getattr__(self, stage):
        return lambda: self._do(stage)


@pytest.fixture(autouse=True)
def faults(monkeypatch):
    """No real process is touched; tests set which stages fail."""
    fake = type("Fault", (FakeFault,), {})
    monkeypatch.setattr(failover_faults, "ProcessFault", fake)
    return fake


@pytest.fixture
def history():
    return FakeHistory()


def arm_run(swarm: Any, history: Any, *, chain=(), faults=(KILL,), arm="petals"):
    workload = Workload(batch=1, prompt_tokens=2, new_tokens=NEW_TOKENS)
    scenario = Scenario("s", "title", "default", "t", SERVERS, workload, faults, chain)
    return ArmRun(swarm, scenario, arm, history, {"new_tokens": NEW_TOKENS}, deadline_s=9.0)


def stages(history):
    return [(row["target"], row["stage"], row["ok"]) for row in history.of("faults")]


def test_a_client_that_ends_well_is_recorded_whole(history):
    swarm = FakeSwarm([{"event": "ready"}, step(0), at("a", "b"), step(1), step(2), {**DONE, "text": ["so"]}])
    assert arm_run(swarm, history, arm="swarmlab").run() == ("done", "3 tokens")
    assert [row["token"] for row in history.of("steps")] == [0, 1, 2]
    assert all(
        (row["arm"], row["scenario"], row["at_s"]) == ("swarmlab", "s", 1.0) for row in history.of("steps")
    )
    (outcome,) = history.of("outcomes")
    told = {name: outcome[name] for name in ("outcome", "tokens", "tokens_expected", "error", "text")}
    assert told == {"outcome": "done", "tokens": 3, "tokens_expected": 3, "error": None, "text": ["so"]}
    assert outcome["seen_broken_input_cache"] is False
    assert stages(history) == [
        ("b", stage, True) for stage in ("setup", "inject", "confirm", "heal", "cleanup")
    ]
    (child,) = swarm.children
    assert child.fake.sent == [{"go": True}]
    assert swarm.killed == [child]
    assert child.closed


def test_the_fault_hits_the_server_that_this_client_uses(history):
    arm_run(FakeSwarm([at("a", "c"), *map(step, range(3)), DONE]), history).run()
    row = history.of("faults")[0]
    assert (row["target"], row["peer"], row["span_start"], row["span_end"], row["at_token"]) == (
        "c",
        "Qmc",
        8,
        16,
        1,
    )


@pytest.mark.parametrize(
    ("target", "point", "in_chain"),
    [
        ("last", at("a", "c"), True),
        ("spare", at("a", "c"), False),
        ("b", at("a", "c"), False),
        ("last", at("c", span="last"), True),  # only the one that is about to be asked is told of
        ("b", at("c", span="last"), None),
    ],
)
def test_a_fault_says_whether_the_client_used_the_server(history, target, point, in_chain):
    spec = replace(KILL, target=target, at_span=point["span"])
    arm_run(FakeSwarm([point, *map(step, range(3)), DONE]), history, faults=(spec,)).run()
    assert {row["in_chain"] for row in history.of("faults")} == {in_chain}


def test_a_client_is_asked_to_wait_once_per_fault_point(history):
    first = replace(KILL, target="first")
    swarm = FakeSwarm([at("a", "b"), *map(step, range(3)), DONE])
    arm_run(swarm, history, faults=(KILL, first)).run()
    ((kind, name, args),) = swarm.spawned
    assert (kind, name) == ("clients.failover", "client-s-petals")
    assert args["fault_points"] == [{"token": 1, "span": None, "request": 1}]
    injected = [row["target"] for row in history.of("faults") if row["stage"] == "inject"]
    healed = [row["target"] for row in history.of("faults") if row["stage"] == "heal"]
    assert (injected, healed) == (["b", "a"], ["a", "b"])


def test_the_plain_model_runs_in_a_process_of_its_own_kind(history):
    swarm = FakeSwarm([*map(step, range(3)), DONE])
    arm_run(swarm, history, arm="plain", faults=()).run()
    assert swarm.spawned[0][0] == "clients.failover:plain"


def test_a_client_on_another_chain_is_no_test_and_its_rows_do_not_count(history):
    other = [step(0, token_ids=[66]), at("a", "c")]
    right = [step(0), at("a", "b"), step(1), step(2), DONE]
    swarm = FakeSwarm(other, other, right)
    assert arm_run(swarm, history, chain=("a", "b")).run()[0] == "done"
    assert [row["token_ids"] for row in history.of("steps")] == [[0], [1], [2]]
    assert len(history.of("outcomes")) == 1
    assert len(history.of("faults")) == 5
    warnings = [row["line"] for row in history.of("logs")]
    assert warnings == [f"attempt {number}: the client uses a, c, not a, b" for number in (1, 2)]
    assert swarm.killed == swarm.children
    assert all(child.closed for child in swarm.children)
    assert swarm.children[0].fake.sent == [], "it is not told to go on"


def test_the_next_client_comes_when_servers_have_measured_again(history, monkeypatch):
    """Else all clients would see the same round trips and take the same route."""
    swarm = FakeSwarm([at("a", "c")], [at("a", "b"), *map(step, range(3)), DONE])
    looks = iter([(1, 1, 1), (2, 2, 1), (2, 2, 1), (2, 2, 2)])
    seen = []

    def snapshot():
        assert len(swarm.spawned) == 1, "the second client is already there"
        seen.append(next(looks))
        records = zip(swarm.servers.values(), seen[-1], strict=True)
        return SimpleNamespace(
            servers=[SimpleNamespace(peer_id=one.peer_id, expires_at_s=until) for one, until in records]
        )

    monkeypatch.setattr(swarm, "snapshot", snapshot)
    assert arm_run(swarm, history, chain=("a", "b")).run()[0] == "done"
    assert len(seen) == 4


def test_a_chain_that_no_client_takes_fails_the_run(history):
    swarm = FakeSwarm(*[[at("a", "c")] for _ in range(CHAIN_ATTEMPTS)])
    with pytest.raises(SwarmFailed, match=rf"s / petals: {CHAIN_ATTEMPTS} clients took another chain"):
        arm_run(swarm, history, chain=("a", "b")).run()
    assert len(history.of("logs")) == CHAIN_ATTEMPTS
    assert {row["kind"] for row in history.rows} == {"logs"}
    assert len(swarm.killed) == CHAIN_ATTEMPTS


def test_rows_of_a_client_that_died_before_the_chain_was_known_are_kept(history):
    swarm = FakeSwarm([step(0), ChannelClosed("gone")])
    assert arm_run(swarm, history, chain=("a", "b")).run()[0] == "exception"
    assert len(history.of("steps")) == 1
    assert history.of("faults") == []


def test_a_client_that_is_not_done_in_time_hangs_and_is_killed(history):
    swarm = FakeSwarm([step(0), at("a", "b"), TimeoutError("no message")])
    outcome, detail = arm_run(swarm, history).run()
    assert (outcome, detail) == ("hang", "not done after 9 s")
    assert swarm.killed == swarm.children
    assert history.of("outcomes")[0]["tokens"] == 1
    assert stages(history)[-2:] == [("b", "heal", True), ("b", "cleanup", True)], "the swarm is whole again"


def test_a_client_that_dies_without_a_word(history):
    outcome, detail = arm_run(FakeSwarm([step(0), ChannelClosed("gone")]), history).run()
    assert (outcome, detail) == ("exception", "the client process ended without a word")


@pytest.mark.parametrize("lines", [["never connects"], []])
def test_a_client_that_does_not_start(history, lines):
    outcome, detail = arm_run(FakeSwarm(lines), history).run()
    assert outcome == "exception"
    assert "the client process" in detail
    assert history.of("outcomes")[0]["tokens"] == 0


def test_an_exception_is_recorded_in_its_words(history):
    error = {"event": "error", "type": "AssertionError", "message": "Broken input cache: span=a, total=13"}
    outcome, detail = arm_run(FakeSwarm([step(0), at("a", "b"), error, DONE]), history).run()
    assert (outcome, detail) == ("exception", "AssertionError: Broken input cache: span=a, total=13")
    assert history.of("outcomes")[0]["seen_broken_input_cache"] is True


def test_an_error_outweighs_the_silence_after_it(history):
    error = {"event": "error", "type": "E", "message": "m"}
    assert arm_run(FakeSwarm([error, ChannelClosed("gone")]), history).run() == ("exception", "E: m")


def test_retries_that_the_log_tells_of_belong_to_the_next_step(history):
    broken = log("Caught exception when running inference: Broken input cache")
    lines = [step(0), at("a", "b"), broken, broken, log("something else"), step(1), step(2), DONE]
    arm_run(FakeSwarm(lines), history).run()
    assert [row["retries"] for row in history.of("steps")] == [0, 2, 0]
    assert len(history.of("logs")) == 3
    assert history.of("outcomes")[0]["seen_broken_input_cache"] is True


def test_a_fault_that_is_not_confirmed_is_recorded_and_the_run_goes_on(history, faults):
    faults.failing = ("confirm",)
    swarm = FakeSwarm([step(0), at("a", "b"), step(1), step(2), DONE])
    assert arm_run(swarm, history).run() == ("done", "3 tokens")
    assert stages(history) == [
        ("b", "setup", True), ("b", "inject", True), ("b", "confirm", False), ("b", "cleanup", True),
    ]  # fmt: skip
    assert swarm.children[0].fake.sent == [{"go": True}]


def test_a_server_that_cannot_be_healed_at_first_is_healed_by_cleanup(history, faults):
    faults.failing = ("heal",)
    assert arm_run(FakeSwarm([at("a", "b"), *map(step, range(3)), DONE]), history).run()[0] == "done"
    assert stages(history)[-2:] == [("b", "heal", False), ("b", "cleanup", True)]


def test_a_server_that_stays_broken_fails_the_run_after_the_others_were_healed(history, faults):
    faults.failing = ("heal", "cleanup")
    two = (replace(KILL, target="first"), KILL)
    with pytest.raises(
        SwarmFailed, match=r"s / petals: the swarm is not whole again: .*cleanup did not work"
    ):
        arm_run(FakeSwarm([at("a", "b"), *map(step, range(3)), DONE]), history, faults=two).run()
    assert [row["target"] for row in history.of("faults") if row["stage"] == "cleanup"] == ["b", "a"]


def test_a_role_that_the_chain_does_not_have_fails_the_run_with_the_reason(history):
    with pytest.raises(SwarmFailed, match=r"s / petals: a chain of 2 spans has no middle one"):
        arm_run(FakeSwarm([at("a", "b")]), history, faults=(replace(KILL, target="middle"),)).run()


def test_failovers_and_floors_are_rows(history):
    numbers = dict.fromkeys(("detect_s", "reroute_s", "connect_s", "replay_s", "total_s"), 0.5)
    failover = {
        "event": "failover", "at_s": 2.0, "token": 1, "cause": "closed", **numbers, "tokens_replayed": 13,
        "requests": 1, "failed": [{"peer": "Qmb"}], "replacements": [{"peer": "Qmc"}], "attempts": ["Qmc"],
    }  # fmt: skip
    floor = {
        "event": "floor", "at_s": 3.0, "repeat": 0, "tokens": 13, "connect_s": 0.1, "prefill_s": 0.1, "spans": [],
    }  # fmt: skip
    lines = [step(0), at("a", "b"), failover, step(1), step(2), floor, DONE]
    arm_run(FakeSwarm(lines), history, arm="swarmlab").run()
    (row,) = history.of("failovers")
    assert (row["spans"], row["failed"], row["tokens_replayed"], row["at_s"]) == (
        [{"peer": "Qmc"}], [{"peer": "Qmb"}], 13, 2.0,
    )  # fmt: skip
    assert history.of("floors")[0]["prefill_s"] == 0.1
