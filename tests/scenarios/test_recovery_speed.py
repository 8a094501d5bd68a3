"""Who is killed when, and what is recorded, with the swarm and the client replaced by what a test says they do."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.channel import ChannelClosed
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.faults import process
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import recovery_speed
from swarmlab.scenarios.registry import build
from swarmlab.settings import load

SMALL = ["+exp=recovery_speed", "speed.histories=[10]", "speed.standby_histories=[]", "speed.repeats=2"]
CHAIN = ["a1", "b2", "c1"]


class PlayedClient:
    """Uses the servers of ``CHAIN``, and looks what is left of them when it goes on."""

    def __init__(self, swarm, *, dies=False):
        self.swarm, self.dies, self.confirming = swarm, dies, False
        self.confirmed_before_recovery = 0
        self.asked, self.lines = [], [{"event": "next", "at_s": 0.0}]

    def channel(self, _deadline_s):
        return self

    def recv(self, _deadline_s):
        if not self.lines:
            raise ChannelClosed("the other end closed")
        return self.lines.pop(0)

    def send(self, message):
        if "go" in message:
            dead = [name for name, state in self.swarm.state.items() if state == "dead"]
            if not self.confirming:
                self.confirmed_before_recovery += self.swarm.looked_at
                self.swarm.killed.append(dead)
                self.confirming = True
                if not self.dies:
                    self.lines.append({"event": "recovered", "at_s": 0.0})
                return
            self.confirming = False
            repeat = self.asked[-1]["repeat"]
            self.lines += [self._failover(repeat) for _ in dead]
            floor = {
                "repeat": repeat,
                "take": 0,
                "tokens": 10,
                "connect_s": 0.01,
                "prefill_s": 0.1,
                "spans": [],
            }
            self.lines.append({"event": "floor", "at_s": 0.0, **floor})
            self.lines.append({"event": "result", "at_s": 0.0, "repeat": repeat, "outcome": "identical"})
            self.lines.append({"event": "next", "at_s": 0.0})
        elif "stop" not in message:
            self.asked.append(message)
            chain = [{"start": 0, "end": 1, "peer": f"Q{name}"} for name in CHAIN]
            self.lines.append({"event": "at", "at_s": 0.0, "chain": chain})

    @staticmethod
    def _failover(repeat):
        return {"event": "failover", "at_s": 0.0, "repeat": repeat, "cause": "broken", "total_s": 0.2,
                "replacements": [], "attempts": []}  # fmt: skip

    def close(self): ...


class PlayedSwarm:
    initial_peers = ("/ip4/127.0.0.1/tcp/1/p2p/Qm",)

    def __init__(self, spec, **client):
        self.servers = {
            one.name: SimpleNamespace(peer_id=f"Q{one.name}", span=one.span, pgid=number)
            for number, one in enumerate(spec.servers)
        }
        self.state = dict.fromkeys(self.servers, "running")
        self.killed, self.client = [], PlayedClient(self, **client)
        self.has_daemon = dict.fromkeys(range(len(self.servers)), True)
        self._looks = 0

    def spawn(self, kind, name, args):
        assert (kind, name) == ("clients.speed", f"client-{args['arm']}")
        return self.client

    def kill_child(self, child): ...

    def stop(self, name):
        self.state[name] = "dead"
        return True

    kill = cont = leave = stop

    def restart(self, name):
        self.state[name], self._looks = "running", 0
        self.has_daemon[self.servers[name].pgid] = True

    def answers(self, name, _timeout_s):
        return self.state[name] == "running"

    def wait_ready(self, names, _deadline_s): ...

    @property
    def looked_at(self):
        """How often processes were looked at since the newest fault was injected."""
        return self._looks if "dead" in self.state.values() else 0

    def group_states(self, name, pgid):
        self._looks += self.state[name] == "dead"
        return {pgid: "sleeping" if self.state[name] == "running" else "stopped"}

    def name_of(self, pid):
        return process.DAEMON if self.has_daemon[pid] else "python"

    def kill_daemons(self, pids):
        self.has_daemon |= dict.fromkeys(pids, False)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the experiment; gives the swarm and the stored run."""

    def run(*overrides, **client):
        settings, config = load([*SMALL, f"models_dir={tmp_path}", *overrides])
        experiment, swarms = build(settings), []

        @contextmanager
        def deploy(spec, _run_dir, *, on_state):
            on_state("a1", "online", "")
            swarms.append(PlayedSwarm(spec, **client))
            monkeypatch.setattr(process, "_name", swarms[-1].name_of)
            monkeypatch.setattr(process, "kill_at_once", swarms[-1].kill_daemons)
            yield swarms[-1]

        monkeypatch.setattr(recovery_speed, "deploy", deploy)
        run_dir = RunDir.create(
            tmp_path, "recovery_speed", config=config, argv=[], overrides=[], seed=0, world="real",
            arms=settings.arms, model=experiment.model, device="cpu",
        )  # fmt: skip
        progress: Any = SimpleNamespace(on_state=lambda *_: None, begin=lambda *_: None, end=lambda *_: None)
        with run_dir:
            experiment.run(run_dir, progress)
        return swarms[0], load_run(run_dir.path)

    return run


def test_the_servers_in_use_die_and_are_back_before_the_next_session(run):
    swarm, stored = run("arms=[swarmlab]")
    assert swarm.killed == [["c1"], ["c1"], ["a1", "c1"], ["a1", "c1"]]
    assert set(swarm.state.values()) == {"running"}
    assert [(one["history"], one["n_failed"], one["repeat"]) for one in swarm.client.asked] == [
        (10, 1, 0), (10, 1, 1), (10, 2, 0), (10, 2, 1),
    ]  # fmt: skip
    assert {place["peer"] for place in swarm.client.asked[0]["servers"]} == {
        f"Q{name}" for name in swarm.servers
    }
    failovers = stored.history("failovers")
    assert [(row["scenario"], row["repeat"]) for row in failovers] == [
        ("10_tokens_1_span", 0), ("10_tokens_1_span", 1), *[("10_tokens_2_spans", 0)] * 2,
        *[("10_tokens_2_spans", 1)] * 2,
    ]  # fmt: skip
    assert swarm.client.confirmed_before_recovery == 0, (
        "looking at all processes would be a part of the recovery"
    )
    faults = [row["stage"] for row in stored.history("faults") if row["scenario"] == "10_tokens_2_spans"]
    assert faults[:6] == ["setup", "setup", "inject", "inject", "confirm", "confirm"], (
        "they die at the same moment"
    )
    assert all(row["ok"] for row in stored.history("faults"))
    assert len(stored.history("floors")) == len(stored.history("outcomes")) == 4


def test_a_client_that_is_lost_ends_the_run_with_the_swarm_whole(run):
    with pytest.raises(SwarmFailed, match="10_tokens_1_span / swarmlab: the client is lost"):
        run("arms=[swarmlab]", dies=True)


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("speed.histories=[1]", "speed.histories"),
        ("speed.failed=[3]", "speed.failed"),
        ("speed.failed=[]", "speed.failed"),
        ("speed.repeats=0", "speed.repeats"),
        ("speed.standby_histories=[11]", "speed.standby_histories"),
        ("swarm.argv=[--atn_cache_tokens,'16']", "swarm.argv"),
        ("floor_repeats=0", "floor_repeats"),
        ("swarm.attn_cache_tokens=100", "swarm.attn_cache_tokens"),
        ("speed.histories=[100000]", "speed.histories"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, override, field):
    with pytest.raises(BadInput) as caught:
        build(load([*SMALL, f"models_dir={tmp_path}", override])[0])
    assert caught.value.field == field
