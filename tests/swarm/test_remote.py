"""A nursery on another machine, played on this one: what the orchestrator sees of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.machine import boot_id
from swarmlab.swarm.node import NodeAgent, NodeOrder
from swarmlab.swarm.ready import wait_for
from swarmlab.swarm.remote import NodeLost, RemoteNursery

KINDS = Path(__file__).parents[1] / "bridge" / "extra_kinds"

pytestmark = pytest.mark.swarm


class Wire:
    """Calls go straight to the agent, until it is cut."""

    def __init__(self, agent):
        self.agent, self.cut = agent, False

    def __call__(self, method, *args, limit_s=60.0, **options):
        assert limit_s > 0
        if self.cut:
            raise NodeLost("cut")
        answer = getattr(self.agent, method)(*args, **options)
        return {**answer, "boot_id": "of another machine"} if method == "facts" else answer


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The machine, and the run folder that its files are gathered in."""
    run_dir = tmp_path_factory.mktemp("run")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(KINDS))
    patch.setenv("SWARMLAB_TEST_KINDS", str(KINDS))
    order = NodeOrder("node-0", str(run_dir), boot_id(), share_files=False, env={}, bind="loopback")
    agent = NodeAgent(order)
    patch.undo()
    deaths = []
    wire = Wire(agent)
    nursery = RemoteNursery("node-0", wire, run_dir, deaths.append)
    nursery.wait_ready(60)
    yield nursery, run_dir, deaths
    nursery.stop()
    assert not nursery.temp_dir.exists()
    assert agent._mirror is not None
    assert not agent._mirror.exists()


def spawn(nursery, run_dir, name, kind, fresh=False, **args):
    return nursery.spawn(
        f"kinds_for_tests:{kind}",
        name,
        args,
        run_dir / f"logs/{name}.log",
        channel=False,
        env={},
        fresh=fresh,
    )


def test_logs_and_events_arrive_before_the_death(other):
    nursery, run_dir, deaths = other
    events = run_dir / "events/teller.jsonl"
    child = spawn(nursery, run_dir, "teller", "tell", path=str(events), lines=["one", "two"], status=3)
    assert child.wait(20) == 3
    assert child in deaths
    assert events.read_text().count("\n") == 2
    assert "the teller says so" in (run_dir / "logs/teller.log").read_text()


@pytest.mark.parametrize("fresh", [False, True])
def test_kill_stop_and_continue_are_carried_out_there(other, fresh):
    nursery, run_dir, _ = other
    child = spawn(nursery, run_dir, f"sleeper-{fresh}", "sleep", fresh=fresh)
    wait_for(lambda: set(nursery.group_states(child.pgid)) == {child.pid}, 10, "it leads its group")
    assert nursery.signal(child.name, signal.SIGSTOP)
    wait_for(lambda: nursery.group_states(child.pgid) == {child.pid: "stopped"}, 10, "it is stopped")
    assert nursery.signal(child.name, signal.SIGCONT)
    wait_for(lambda: "stopped" not in nursery.group_states(child.pgid).values(), 10, "it goes on")
    assert nursery.signal(child.name, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert nursery.group_states(child.pgid) == {}
    assert not nursery.signal(child.name, signal.SIGKILL)


def test_a_fresh_child_has_its_own_environment_and_the_same_contract(other):
    nursery, run_dir, _ = other
    path = run_dir / "events/fresh.jsonl"
    child = nursery.spawn(
        "kinds_for_tests:tell", "fresh", {"path": str(path), "lines": [], "status": 5, "variable": "SEEN"},
        run_dir / "logs/fresh.log", channel=False, env={"SEEN": "yes", "PYTHONWARNINGS": None}, fresh=True,
    )  # fmt: skip
    assert child.wait(60) == 5
    log = (run_dir / "logs/fresh.log").read_text()
    assert "SEEN=yes" in log
    assert f"leader={child.pid}" in log


def test_its_clock_is_ours(other):
    nursery, _, _ = other
    assert not nursery.is_here
    assert abs(nursery._clock_offset()) < 1  # it is this machine's clock, after all


def test_channels_do_not_leave_a_machine(other):
    nursery, run_dir, _ = other
    with pytest.raises(SwarmFailed, match="has a channel"):
        nursery.spawn("kinds_for_tests:sleep", "x", {}, run_dir / "x.log", channel=True, env={})


def test_a_lost_machine_takes_its_children_along(tmp_path):
    class Gone:
        cut = False

        def __call__(self, method, *_, **__):
            if self.cut:
                raise NodeLost("no route")
            if method == "facts":
                return {
                    "address": "10.0.0.9", "temp_dir": "/tmp/x", "gpus": [], "hostname": "far", "boot_id": boot_id(),
                }  # fmt: skip
            return {"spawn": 4242, "news": {"exits": [], "files": {}}}[method]

    wire, deaths = Gone(), []
    nursery = RemoteNursery("far", wire, tmp_path, deaths.append)
    child = nursery.spawn("children:server", "s", {}, tmp_path / "s.log", channel=False, env={})
    wire.cut = True
    assert child.wait(10) == -9
    assert deaths == [child]
    assert nursery.group_states(4242) == {}
    with pytest.raises(SwarmFailed, match="machine far is gone"):
        nursery.signal("s", signal.SIGKILL)
    nursery.stop()


def test_a_machine_cannot_write_outside_the_run_folder(tmp_path):
    nursery = object.__new__(RemoteNursery)
    nursery._run_dir, nursery._offset_s = tmp_path / "run", 0.0
    nursery._append("../stolen.log", b"x")
    nursery._append("logs/fine.log", b"x")
    assert not (tmp_path / "stolen.log").exists()
    assert (tmp_path / "run/logs/fine.log").read_bytes() == b"x"
