"""Faults on real process groups: a leader with helpers, as a server has, but of idle processes."""

# the fakes keep the signatures of the real swarm
# ruff: noqa: ARG002

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from swarmlab.faults import process
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.schedule import Fault
from swarmlab.health.processes import group_states
from swarmlab.types import Span

# a leader with two helpers, one of them by the name of a network daemon; SIGTERM ends it in order, helpers with it
GROUP = """
import ctypes, os, signal, sys
helpers = []
for name in (b"helper", b"p2pd"):
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
        print("up", flush=True)
        signal.pause()
    helpers.append(pid)
def leave(*_):
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True:
    signal.pause()
"""


class FakeSwarm:
    """One server made of idle processes, with the handles of ``swarmlab.swarm.deploy.Swarm``."""

    def __init__(self):
        self.span = Span(4, 8)
        self.restart("s")

    def hold(self, name, span):
        before, self.span = self.span, span
        return before

    def restart(self, name):
        self.leader = subprocess.Popen(
            [sys.executable, "-c", GROUP], stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        assert self.leader.stdout is not None
        for _ in range(3):
            self.leader.stdout.readline()

    def _signal(self, number, leader_only=False):
        try:
            (os.kill if leader_only else os.killpg)(self.leader.pid, number)
        except ProcessLookupError:
            return False
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.leader.wait()
        return True

    def kill(self, name):
        was_there = self._signal(signal.SIGKILL)
        process._until(lambda: not group_states(self.leader.pid), "the group is gone")
        return was_there

    def stop(self, name):
        was_there = self._signal(signal.SIGSTOP)
        process._until(
            lambda: process._all_stopped(group_states(self.leader.pid)) or not was_there, "stopped"
        )
        return was_there

    def cont(self, name):
        return self._signal(signal.SIGCONT)

    def leave(self, name):
        return self._signal(signal.SIGTERM, leader_only=True)

    def answers(self, name, timeout_s):
        states = group_states(self.leader.pid)
        return bool(states) and psutil.STATUS_STOPPED not in states.values()

    def group_states(self, name, pgid):
        return group_states(pgid)

    def wait_ready(self, names, deadline_s):
        assert self.answers(names[0], 0)

    def pgid(self):
        return self.leader.pid

    def close(self):
        self.kill("s")
        assert self.leader.stdout is not None
        self.leader.stdout.close()

    def names(self):
        """Of those of its processes that run or are stopped; a zombie has ended."""
        return {psutil.Process(pid).name() for pid in group_states(self.leader.pid)}


@pytest.fixture
def swarm():
    swarm = FakeSwarm()
    yield swarm
    swarm.close()


def live(fault, swarm, **options):
    rows = []
    steps = ProcessFault(fault, "s", swarm, swarm.pgid, **options)
    return Lifecycle(steps, rows.append, {"fault": fault.value}), rows


def test_group_states_sees_leader_and_helpers(swarm):
    assert len(group_states(swarm.pgid())) == 3
    assert swarm.pgid() in group_states(swarm.pgid())


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.LEAVE])
def test_the_end_of_a_server_is_confirmed_when_no_process_is_left(swarm, fault):
    life, rows = live(fault, swarm)
    pgid = swarm.pgid()
    life.setup()
    life.inject()
    life.confirm()
    assert group_states(pgid) == {}
    life.heal()
    assert swarm.pgid() != pgid
    assert len(group_states(swarm.pgid())) == 3
    life.cleanup()
    assert life.valid
    assert [row["ok"] for row in rows] == [True] * 5


def test_a_stop_is_confirmed_when_every_process_is_stopped(swarm):
    life, _ = live(Fault.STOP, swarm)
    life.setup()
    life.inject()
    life.confirm()
    assert set(group_states(swarm.pgid()).values()) == {psutil.STATUS_STOPPED}
    life.heal()
    assert psutil.STATUS_STOPPED not in group_states(swarm.pgid()).values()
    life.cleanup()
    assert life.valid


def test_a_server_that_is_cut_off_has_no_network_daemon_and_does_nothing(swarm):
    life, rows = live(Fault.CUT, swarm)
    pgid = swarm.pgid()
    life.setup()
    life.inject()
    life.confirm()
    states = group_states(pgid)
    assert set(states.values()) == {psutil.STATUS_STOPPED}
    assert len(states) == 2
    assert "p2pd" not in {psutil.Process(pid).name() for pid in states}
    life.heal()
    assert group_states(pgid) == {}
    assert len(group_states(swarm.pgid())) == 3
    life.cleanup()
    assert [row["ok"] for row in rows] == [True] * 5


def test_a_server_is_stopped_before_it_is_cut_off_so_that_several_can_be_at_the_same_moment(
    swarm, monkeypatch
):
    life, _ = live(Fault.CUT, swarm)
    pgid = swarm.pgid()
    life.setup()
    states = group_states(pgid)
    assert set(states.values()) == {psutil.STATUS_STOPPED}
    assert "p2pd" in {psutil.Process(pid).name() for pid in states}  # its connections stand
    for slow in ("stop", "answers", "group_states"):
        monkeypatch.setattr(swarm, slow, None)  # nothing but signals is left to be done
    life.inject()
    monkeypatch.undo()
    life.confirm()
    life.cleanup()
    assert life.valid


def test_servers_with_one_list_are_cut_off_by_the_first_that_is_injected(swarm):
    other = FakeSwarm()
    try:
        together: list[int] = []
        lives = [live(Fault.CUT, each, cut_with=together)[0] for each in (swarm, other)]
        for life in lives:
            life.setup()
        lives[0].inject()
        assert together == []
        process._until(lambda: "p2pd" not in other.names(), "the other one's daemon is gone")
        lives[1].inject()
        for life in lives:
            life.confirm()
            life.cleanup()
        assert all(life.valid for life in lives)
    finally:
        other.close()


def test_a_server_that_was_stopped_to_be_cut_off_and_never_was_comes_back(swarm):
    life, _ = live(Fault.CUT, swarm)
    life.setup()
    life.cleanup()
    assert psutil.STATUS_STOPPED not in group_states(swarm.pgid()).values()
    assert len(group_states(swarm.pgid())) == 3


def test_a_server_without_a_network_daemon_cannot_be_cut_off(swarm, monkeypatch):
    monkeypatch.setattr(process, "DAEMON", "another")
    life, rows = live(Fault.CUT, swarm)
    with pytest.raises(FaultFailed, match="has no another"):
        life.setup()
    life.cleanup()
    assert swarm.answers("s", 0)
    assert [row["ok"] for row in rows] == [False, True]


def test_continuing_and_restarting_are_faults_of_their_own(swarm):
    swarm.stop("s")
    life, _ = live(Fault.CONT, swarm)
    life.setup()
    life.inject()
    life.confirm()
    life.cleanup()
    assert life.valid
    swarm.kill("s")
    life, _ = live(Fault.RESTART, swarm)
    life.setup()
    life.inject()
    life.confirm()
    life.cleanup()
    assert life.valid
    assert len(group_states(swarm.pgid())) == 3


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.STOP, Fault.LEAVE, Fault.CONT])
def test_a_dead_target_fails_the_setup(swarm, fault):
    swarm.kill("s")
    life, rows = live(fault, swarm)
    with pytest.raises(FaultFailed, match="no process"):
        life.setup()
    assert not life.valid
    assert rows[0]["ok"] is False


def test_a_running_target_cannot_be_restarted_or_continued(swarm):
    with pytest.raises(FaultFailed, match="still runs"):
        live(Fault.RESTART, swarm)[0].setup()
    with pytest.raises(FaultFailed, match="not stopped"):
        live(Fault.CONT, swarm)[0].setup()


def test_a_hung_target_fails_the_setup(swarm):
    swarm.stop("s")
    with pytest.raises(FaultFailed, match="does not answer"):
        live(Fault.LEAVE, swarm)[0].setup()


def test_a_hung_server_can_die(swarm):
    swarm.stop("s")
    life, _ = live(Fault.KILL, swarm)
    life.setup()
    life.inject()
    life.confirm()
    assert not group_states(swarm.pgid())
    life.heal()
    assert swarm.answers("s", 0)


def test_a_pause_ends_by_itself_after_it_was_confirmed(swarm):
    fault = ProcessFault(Fault.PAUSE, "s", swarm, swarm.pgid, seconds=0.05)
    life = Lifecycle(fault, lambda _: None, {})
    life.setup()
    life.inject()
    assert process._all_stopped(group_states(swarm.pgid()))
    life.confirm()
    process._until(lambda: swarm.answers("s", 0), "the server goes on")
    life.heal()
    life.cleanup()
    assert life.valid


def test_a_pause_that_was_healed_early_does_not_end_later(swarm):
    fault = ProcessFault(Fault.PAUSE, "s", swarm, swarm.pgid, seconds=30.0)
    life = Lifecycle(fault, lambda _: None, {})
    life.setup()
    life.inject()
    life.confirm()
    life.heal()
    assert swarm.answers("s", 0)
    assert fault._timer is not None
    assert fault._timer.finished.is_set()


def test_a_moved_server_holds_other_blocks_until_it_is_healed(swarm):
    fault = ProcessFault(Fault.MOVE, "s", swarm, swarm.pgid, to=Span(0, 4))
    first, life = swarm.pgid(), Lifecycle(fault, lambda _: None, {})
    life.setup()
    life.inject()
    life.confirm()
    assert swarm.span == Span(0, 4)
    assert swarm.pgid() != first
    life.heal()
    assert swarm.span == Span(4, 8)
    assert swarm.answers("s", 0)


def test_a_kill_that_leaves_a_helper_is_not_confirmed(swarm, monkeypatch):
    monkeypatch.setattr(process, "CONFIRM_S", 0.2)
    monkeypatch.setattr(swarm, "kill", lambda _: swarm._signal(signal.SIGKILL, leader_only=True))
    life, _ = live(Fault.KILL, swarm)
    life.setup()
    life.inject()
    with pytest.raises(FaultFailed, match="all processes are gone"):
        life.confirm()
    assert not life.valid
    os.killpg(swarm.pgid(), signal.SIGKILL)


def test_a_stop_that_misses_a_helper_is_not_confirmed(swarm, monkeypatch):
    monkeypatch.setattr(process, "CONFIRM_S", 0.2)
    monkeypatch.setattr(swarm, "stop", lambda _: swarm._signal(signal.SIGSTOP, leader_only=True))
    life, _ = live(Fault.STOP, swarm)
    life.setup()
    life.inject()
    with pytest.raises(FaultFailed, match="all processes are stopped"):
        life.confirm()


def test_cleanup_heals_what_was_left_broken(swarm):
    life, _ = live(Fault.STOP, swarm)
    life.setup()
    life.inject()
    life.cleanup()
    assert psutil.STATUS_STOPPED not in group_states(swarm.pgid()).values()


def test_cleanup_does_not_heal_twice(swarm):
    life, rows = live(Fault.KILL, swarm)
    for stage in (life.setup, life.inject, life.confirm, life.heal):
        stage()
    healed = swarm.pgid()
    life.cleanup()
    assert swarm.pgid() == healed
    assert rows[-1]["detail"] == "nothing to undo"
