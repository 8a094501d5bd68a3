"""Processes that are killed at the same moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from swarmlab.faults.at_once import kill_at_once

SLEEPER = "import signal; print(1, flush=True); signal.pause()"


def sleeper():
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_all_of_them_end_also_those_that_are_stopped_and_the_caller_is_as_before():
    before = os.sched_getscheduler(0)
    processes = [sleeper() for _ in range(3)]
    os.kill(processes[1].pid, signal.SIGSTOP)
    kill_at_once([process.pid for process in processes])
    assert [process.wait() for process in processes] == [-signal.SIGKILL] * 3
    assert os.sched_getscheduler(0) == before
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()


def test_one_that_is_gone_keeps_none_of_the_others_alive():
    gone, there = sleeper(), sleeper()
    gone.kill()
    gone.wait()
    kill_at_once([gone.pid, there.pid])
    assert there.wait() == -signal.SIGKILL
    for process in (gone, there):
        assert process.stdout is not None
        process.stdout.close()


def test_without_the_privilege_they_are_killed_all_the_same(monkeypatch):
    def forbidden(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    process = sleeper()
    kill_at_once([process.pid])
    assert process.wait() == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="real-time scheduling wants privileges")
def test_the_caller_runs_before_those_that_die(monkeypatch):
    seen = []
    process = sleeper()
    kill = os.kill

    def looked_at(pid, number):
        seen.append(
            (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.sched_getscheduler(pid))
        )
        kill(pid, number)

    monkeypatch.setattr(os, "kill", looked_at)
    kill_at_once([process.pid])
    process.wait()
    assert seen == [(os.SCHED_FIFO, 2, os.SCHED_FIFO)]
    assert process.stdout is not None
    process.stdout.close()
