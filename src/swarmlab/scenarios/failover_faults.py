"""The faults of one client in one scenario of +exp=failover: whom they hit, when, and how the swarm is made whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from swarmlab.analysis.metrics import FAILURES
from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.schedule import KILLED, SPARE, FaultSpec, Role, resolve
from swarmlab.swarm.deploy import Swarm


@dataclass
class ArmFaults:
    """Aims faults at the servers that a client uses, and heals them when it has ended.

    :param about: scenario and arm, for errors
    :param write: takes the fields of each row of ``faults``
    """

    swarm: Swarm
    about: str
    write: Callable[..., None]
    _fallen: list[str] = field(default_factory=list, init=False)
    _timers: list[threading.Timer] = field(default_factory=list, init=False)
    _faults: list[Lifecycle] = field(default_factory=list, init=False)

    @property
    def has_begun(self) -> bool:
        """Whether one is there to heal."""
        return bool(self._faults)

    def begin(self, spec: FaultSpec, chain: Sequence[str], *, is_place: bool) -> None:
        """
        :param chain: names of the servers that the client uses, in the order of their blocks
        :param is_place: ``chain`` is only the one server about to be asked, so that a role means that one
        :raises SwarmFailed: if the chain has no such server
        """
        target = self._target(spec, chain, is_place=is_place)
        if spec.fault in FAILURES:
            self._fallen.append(target)
        in_chain = True if target in chain else None if is_place else False
        if spec.after_s is None:
            self._inject(spec, target, in_chain=in_chain)
        else:  # the client goes on and meets the fault, or its end, in its own time
            timer = threading.Timer(spec.after_s, self._inject, (spec, target), {"in_chain": in_chain})
            self._timers.append(timer)
            timer.start()

    def abandon(self) -> None:
        """Whoever ends the run tears the swarm down: nothing is left to heal."""
        self._faults.clear()

    def heal(self) -> None:
        """Make the swarm whole again, last fault first.

        :raises SwarmFailed: if a server stays broken
        """
        for timer in self._timers:
            timer.cancel()
            timer.join()
        broken: list[str] = []
        while self._faults:
            lifecycle = self._faults.pop()
            with suppress(FaultFailed):  # recorded, and cleanup tries again
                if lifecycle.failure is None:
                    lifecycle.heal()
            try:
                lifecycle.cleanup()
            except FaultFailed as error:
                broken.append(str(error))
        if broken:
            raise SwarmFailed(f"{self.about}: the swarm is not whole again: {'; '.join(broken)}")

    def _target(self, spec: FaultSpec, chain: Sequence[str], *, is_place: bool) -> str:
        if spec.target == KILLED:
            return self._fallen[-1]
        if spec.target == SPARE:
            return self._spare(chain)
        return chain[0] if is_place and spec.target in list(Role) else self._resolve(spec.target, chain)

    def _spare(self, chain: Sequence[str]) -> str:
        wanted = self.swarm.servers[chain[-1]].span
        for name, server in self.swarm.servers.items():
            free = name not in chain and name not in self._fallen
            if free and server.span is not None and wanted is not None and server.span.covers(wanted):
                return name
        raise SwarmFailed(f"{self.about}: nobody else holds blocks {wanted}")

    def _resolve(self, target: str, chain: Sequence[str]) -> str:
        try:
            return resolve(target, chain)
        except ValueError as error:
            raise SwarmFailed(f"{self.about}: {error}") from None

    def _inject(self, spec: FaultSpec, target: str, *, in_chain: bool | None) -> None:
        """:param in_chain: whether the client used the server when the fault was due; None where that is not known"""
        server = self.swarm.servers[target]
        span = server.span
        about = {
            "fault": spec.fault.value,
            "target": target,
            "peer": server.peer_id,
            "span_start": span.start if span else None,
            "span_end": span.end if span else None,
            "at_token": spec.before_token,
            "in_chain": in_chain,
        }
        fault = ProcessFault(
            spec.fault,
            target,
            self.swarm,
            lambda: self.swarm.servers[target].pgid,
            seconds=spec.seconds,
            to=spec.to,
        )
        lifecycle = Lifecycle(fault, lambda row: self.write(**row), about)
        self._faults.append(lifecycle)
        try:
            lifecycle.setup()
            lifecycle.inject()
            lifecycle.confirm()
        except FaultFailed:
            pass  # recorded; the judge will not call this run a pass
