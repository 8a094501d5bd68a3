"""Which cells are run, and what is recorded, with the swarm and the clients replaced by what a test says they do."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge.models import Checkpoint
from swarmlab.channel import ChannelClosed
from swarmlab.errors import BadInput
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import failure_rates, failure_rates_build
from swarmlab.scenarios.failure_rates import FailureRates, stages
from swarmlab.settings import load
from swarmlab.swarm.spec import SwarmSpec

LENGTH, STEP_S = 64, 0.05


class FakeClient:
    """Says its lines; between them it does what a server or an orchestrator would notice."""

    def __init__(self, lines):
        self._lines = iter(lines)

    def channel(self, _deadline_s):
        return self

    def recv(self, _deadline_s):
        line = next(self._lines, None)
        if line is None:
            raise ChannelClosed("the other end closed")
        return line

    def send(self, message): ...
    def close(self): ...


class FakeSwarm:
    """Clients that take their time at p = 0 and lose a message (or never end) otherwise."""

    initial_peers = ("/ip4/127.0.0.1/tcp/1/p2p/Qm",)

    def __init__(self, spec):
        self.servers = {
            one.name: SimpleNamespace(peer_id=f"Qm{one.name}", span=one.span) for one in spec.servers
        }
        self.logs = {one.name: dict(one.options)["log_path"] for one in spec.servers}
        self.switches = {one.name: dict(one.options)["switch_path"] for one in spec.servers}
        self.seen: list[tuple[str, float, Any]] = []

    def spawn(self, kind, name, args):
        assert kind == ("clients.failover:plain" if args["arm"] == "plain" else "clients.rates")
        return FakeClient(self._lines(name, args))

    def kill_child(self, child): ...

    def _lines(self, name, args):
        yield {"event": "ready", "at_s": 0.0}
        if args["arm"] != "plain":
            yield {"event": "at", "at_s": 0.0}
        plan = self._plan("stage1")
        self.seen.append((name, args["bound_s"], (plan, self._plan("stage4"))))
        for token in range(args["length"]):
            yield {"event": "step", "at_s": 0.0, "token": token, "phase": "decode", "seconds": STEP_S,
                   "token_ids": [token]}  # fmt: skip
        if plan is not None:
            with open(self.logs["stage1"], "a") as log:  # noqa: PTH123 - as the server does
                inject = {"stage": "inject", "message": "request", "method": "inference", "n_draws": 7}
                confirm = {"stage": "confirm", "before_bytes": 10, "after_bytes": 0}
                log.writelines(json.dumps({**line, "at_s": 1.0}) + "\n" for line in (inject, confirm))
            yield {"event": "failover", "at_s": 1.0, "session": 0, "token": 3, "cause": "reset", "total_s": 0.2,
                   "tokens_replayed": 3}  # fmt: skip
        if args["arm"] == "petals":
            yield {"event": "error", "at_s": 1.0, "type": "AssertionError", "message": "Broken input cache"}
        if plan is not None and args["arm"] == "restart":
            yield {"event": "late", "at_s": 1.0}
        yield {"event": "done", "at_s": 1.0, "elapsed_s": args["length"] * STEP_S, "steps_run": args["length"],
               "restarts": 0}  # fmt: skip

    def _plan(self, name):
        try:
            with open(self.switches[name]) as file:  # noqa: PTH123
                return json.load(file)
        except FileNotFoundError:
            return None


class Seen:
    def __init__(self):
        self.ended = []

    def on_state(self, name, state, detail): ...
    def begin(self, scenario, arm): ...

    def end(self, scenario, arm, outcome, _detail):
        self.ended.append((scenario, arm, outcome))


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    checkpoint = Checkpoint(
        path=tmp_path, dht_prefix="m", n_blocks=16, model_id="m", sha256="0", has_tokenizer=False, vocab_size=256,
        max_tokens=4096, hidden_size=64, dtype="float32",
    )  # fmt: skip
    swarms = []

    @contextmanager
    def deploy(spec, _run_dir, *, on_state):
        on_state("stage1", "online", "")
        swarms.append(FakeSwarm(spec))
        yield swarms[-1]

    monkeypatch.setattr(failure_rates, "deploy", deploy)
    made = FailureRates(
        checkpoint=checkpoint, arms=["restart", "cacheless", "swarmlab", "petals"], lengths=[LENGTH],
        rates=[0.001, 0.02, 0.2], repeats=2, budget_s=10.0, bounded_s=3.0, swarm=SwarmSpec(tmp_path, "m", 16, ()),
        throughput_tps=1.0, client={}, recovery={}, seed=5,
    )  # fmt: skip
    return SimpleNamespace(made=made, swarms=swarms)


@pytest.fixture
def run(experiment, tmp_path):
    made, seen = experiment.made, Seen()
    run_dir = RunDir.create(
        tmp_path / "runs", "failure_rates", config={}, argv=[], overrides=[], seed=5, world="real", arms=made.arms,
        model=made.model, device="cpu",
    )  # fmt: skip
    with run_dir:
        made.run(run_dir, seen)
    assert len(seen.ended) == made.n_units
    return SimpleNamespace(stored=load_run(run_dir.path), ended=seen.ended, swarm=experiment.swarms[0])


def outcomes_of(run, p, arm):
    rows = [row for row in run.stored.history("outcomes") if (row["p"], row["arm"]) == (p, arm)]
    return [(row["how"], row["outcome"]) for row in rows]


def test_cells_are_run_computed_or_watched_as_the_failure_free_ones_say(run):
    # a generation takes 3.2 s; with restarts at 0.02 per send 10 q steps are expected to take minutes
    assert outcomes_of(run, 0.0, "plain") == [("measured", "done")]
    assert outcomes_of(run, 0.0, "restart") == [("measured", "done")]
    assert outcomes_of(run, 0.001, "swarmlab") == 2 * [("measured", "done")]
    assert outcomes_of(run, 0.02, "restart") == 2 * [("simulated", "simulated")]
    assert outcomes_of(run, 0.02, "petals") == 2 * [("bounded", "exception")]


def test_petals_is_not_run_where_it_is_the_restart_arm(run):
    assert outcomes_of(run, 0.0, "petals") == []


def test_one_that_takes_too_long_is_unfinished(run):
    assert outcomes_of(run, 0.001, "restart") == 2 * [("measured", "unfinished")]


def test_messages_are_lost_only_between_the_clients_word_and_its_end(run):
    for name, _, (first, last) in run.swarm.seen:
        if "_p_0-" in name:
            assert first is last is None
        else:
            assert first["request"] == last["request"] == last["reply"] > 0
            assert first["reply"] == 0, "only the last stage's reply is a send of its own"
            assert first["cell"] == last["cell"]
    seeds = {plans[0]["seed"] for _, _, plans in run.swarm.seen if plans[0]}
    assert seeds == {5, 6}, "each repeat has its own"
    assert all(run.swarm._plan(name) is None for name in run.swarm.switches)


def test_a_hopeless_generation_is_watched_for_a_moment_only(run):
    assert outcomes_of(run, 0.2, "restart") == 2 * [("bounded", "unfinished")]
    bounds = {bound_s for name, bound_s, _ in run.swarm.seen if "p_0.2-restart" in name}
    assert bounds == {3.0}


def test_petals_is_watched_until_a_failure_or_its_end(run):
    bounds = {bound_s for name, bound_s, _ in run.swarm.seen if "petals" in name}
    assert bounds == {40.0}


def test_every_reset_is_in_the_history_with_its_confirmation(run):
    rows = [row for row in run.stored.history("faults") if (row["arm"], row["repeat"]) == ("swarmlab", 0)]
    rows = [row for row in rows if row["scenario"] == "64_tokens_p_0.001" and row["target"] == "stage1"]
    assert [row["stage"] for row in rows] == ["setup", "inject", "confirm", "heal"]
    assert all(row["ok"] and row["fault"] == "reset" for row in rows)
    assert (rows[0]["span_start"], rows[0]["span_end"], rows[0]["peer"]) == (0, 4, "Qmstage1")


def test_stages_are_servers_with_a_switch(run):
    assert list(run.swarm.servers) == list(stages(16))
    assert all(path.endswith(".switch.json") for path in run.swarm.switches.values())


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("swarm.attn_cache_tokens=100", "swarm.attn_cache_tokens"),
        ("rates.lengths=[5000]", "workload.prompt_tokens"),
    ],
)
def test_a_grid_that_the_servers_cannot_hold_is_refused_before_anything_starts(override, field, tmp_path):
    settings, _ = load(["+exp=failure_rates", f"models_dir={tmp_path}", override])
    with pytest.raises(BadInput) as error:
        failure_rates_build.build_failure_rates(settings)
    assert error.value.field == field


def test_the_whole_grid_is_the_papers():
    settings, _ = load(["+exp=failure_rates", "grid=full"])
    assert (settings.rates.lengths, settings.rates.rates) == ([128, 1024], [0.0, 1e-4, 1e-3, 1e-2])
    assert settings.arms == ["restart", "cacheless", "swarmlab", "petals"]
