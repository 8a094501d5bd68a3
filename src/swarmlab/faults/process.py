"""Faults on the processes of a server, confirmed by looking at the processes themselves."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from swarmlab.faults.at_once import kill_at_once
from swarmlab.faults.lifecycle import FaultFailed
from swarmlab.faults.schedule import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from swarmlab.types import Span

POLL_S = 0.02
DAEMON = "p2pd"  # the process through which a server talks to others
CONFIRM_S = 10.0
ANSWER_S = 2.0
READY_S = 90.0


class Control(Protocol):
    """What a swarm lets one do to its servers (``swarmlab.swarm.deploy.Swarm``)."""

    def kill(self, name: str) -> bool: ...
    def stop(self, name: str) -> bool: ...
    def cont(self, name: str) -> bool: ...
    def leave(self, name: str) -> bool: ...
    def restart(self, name: str) -> None: ...
    def hold(self, name: str, span: Span) -> Span: ...
    def answers(self, name: str, timeout_s: float) -> bool: ...
    def group_states(self, name: str, pgid: int) -> dict[int, str]: ...
    def wait_ready(self, names: list[str], deadline_s: float) -> Any: ...


class ProcessFault:
    """One fault on one server: the steps for ``swarmlab.faults.lifecycle.Lifecycle``.

    :param name: of the server
    :param pgid_of: gives the number of its process group as it is now (a restart changes it)
    :param ready_s: how long a healed server may take to serve again
    :param seconds: how long a pause lasts
    :param to: the blocks a moved server comes back with
    :param cut_with: for servers that are cut off at the same moment, one list that their faults share: the first that
        is injected cuts off all whose setup has been
    """

    def __init__(
        self,
        fault: Fault,
        name: str,
        control: Control,
        pgid_of: Callable[[], int],
        *,
        ready_s: float = READY_S,
        seconds: float | None = None,
        to: Span | None = None,
        cut_with: list[int] | None = None,
    ) -> None:
        self.fault, self.name, self.ready_s = fault, name, ready_s
        self._seconds, self._to = seconds, to
        self._home: Span | None = None
        self._timer: threading.Timer | None = None
        self._control, self._pgid_of = control, pgid_of
        self._pgid = 0
        self._daemons = [] if cut_with is None else cut_with
        self._broken = False

    def setup(self) -> str:
        self._pgid = self._pgid_of()
        states = self._states()
        if self.fault is Fault.RESTART:
            _require(not states, f"{self.name} still runs: {states}")
            return "nothing of the server runs"
        _require(bool(states), f"no process of {self.name} runs")
        if self.fault is Fault.CONT:
            _require(_all_stopped(states), f"{self.name} is not stopped: {states}")
            return f"{len(states)} processes, all stopped"
        if self.fault is Fault.KILL and _all_stopped(states):
            return f"{len(states)} processes, hung"
        _require(self._control.answers(self.name, ANSWER_S), f"{self.name} does not answer before the fault")
        if self.fault is Fault.CUT:
            return self._hold_still(states)
        return f"{len(states)} processes, serving"

    def inject(self) -> str:
        self._broken = self.fault not in (Fault.CONT, Fault.RESTART)
        if self.fault is Fault.RESTART:
            self._control.restart(self.name)
            return "started"
        order = {
            Fault.KILL: self._control.kill,
            Fault.STOP: self._control.stop,
            Fault.CONT: self._control.cont,
            Fault.LEAVE: self._control.leave,
            Fault.PAUSE: self._control.stop,
            Fault.CUT: self._cut,
            Fault.MOVE: self._control.leave,
        }[self.fault]
        _require(order(self.name), f"{self.name} was gone")
        if self._to is not None:
            _until(lambda: not self._states(), "all processes are gone")
            self._home = self._control.hold(self.name, self._to)
            self._control.restart(self.name)
        return f"process group {self._pgid}"

    def _hold_still(self, states: dict[int, str]) -> str:
        """Stop a server that is to be cut off; its connections stand until its network daemon is killed.

        Signals apart, everything that takes time is done here, so that several servers are cut off at the same moment.
        """
        own = [pid for pid in states if _name(pid) == DAEMON]
        _require(bool(own), f"{self.name} has no {DAEMON}")
        self._broken = True
        _require(self._control.stop(self.name), f"{self.name} was gone")
        self._daemons += own
        return f"{len(states)} processes, which served until now, stopped"

    def _cut(self, name: str) -> bool:
        """Kill the network daemons of stopped servers, and so end their connections; confirmed later."""
        del name
        daemons = list(self._daemons)
        self._daemons.clear()  # an other fault of the volley kills nobody again: the numbers are free now
        kill_at_once(daemons)
        return True

    def confirm(self) -> str:
        if self.fault in (Fault.KILL, Fault.LEAVE):
            waited_s = _until(lambda: not self._states(), "all processes are gone")
            return f"all processes gone after {waited_s:.3f} s"
        if self.fault is Fault.CUT:
            waited_s = _until(
                lambda: (
                    _all_stopped(states := self._states()) and not any(_name(pid) == DAEMON for pid in states)
                ),
                "the network daemon is gone and all else is stopped",
            )
            return f"network daemon gone, all else stopped, after {waited_s:.3f} s"
        if self.fault in (Fault.STOP, Fault.PAUSE):
            waited_s = _until(lambda: _all_stopped(self._states()), "all processes are stopped")
            if self._seconds is not None:  # from now on: a pause that was not seen by anybody would be none
                self._timer = threading.Timer(self._seconds, self._control.cont, [self.name])
                self._timer.daemon = True
                self._timer.start()
            return f"all processes stopped after {waited_s:.3f} s"
        return self._serving_again()

    def heal(self) -> str:
        if not self._broken:
            return "nothing to undo"
        if self._timer is not None:
            self._timer.cancel()
        if self._home is not None:
            self._control.kill(self.name)
            self._control.hold(self.name, self._home)
            self._control.restart(self.name)
        elif self.fault in (Fault.STOP, Fault.PAUSE):
            _require(self._control.cont(self.name), f"{self.name} is gone and cannot go on")
        else:
            self._control.kill(self.name)  # whatever is left of one that was to leave by itself
            self._control.restart(self.name)
        detail = self._serving_again()
        self._broken = False
        return detail

    def cleanup(self) -> str:
        """A server that is still broken is healed, so that what comes next finds the swarm whole."""
        return self.heal()

    def _states(self) -> dict[int, str]:
        """Of the server's processes, on whichever machine it runs."""
        return self._control.group_states(self.name, self._pgid)

    def _serving_again(self) -> str:
        started = time.monotonic()
        self._control.wait_ready([self.name], self.ready_s)
        self._pgid = self._pgid_of()
        return f"serving after {time.monotonic() - started:.3f} s"


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def _all_stopped(states: dict[int, str]) -> bool:
    return bool(states) and all(state == psutil.STATUS_STOPPED for state in states.values())


def _require(condition: bool, failure: str) -> None:
    if not condition:
        raise FaultFailed(failure)


def _until(predicate: Callable[[], bool], what: str) -> float:
    """Wait until the predicate holds; return the seconds that took."""
    started = time.monotonic()
    while not predicate():
        if time.monotonic() - started > CONFIRM_S:
            raise FaultFailed(f"not within {CONFIRM_S:.0f} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - started
