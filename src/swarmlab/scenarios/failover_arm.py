"""One arm in one scenario of +exp=failover: a client process, its faults, and what it reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from swarmlab.channel import ChannelClosed, Message
from swarmlab.errors import SwarmFailed
from swarmlab.faults.lifecycle import FaultFailed, Lifecycle
from swarmlab.faults.process import ProcessFault
from swarmlab.faults.schedule import KILLED, SPARE, Fault, FaultSpec, Role, due, resolve
from swarmlab.record.writer import HistoryWriter
from swarmlab.scenarios.failover_files import Scenario
from swarmlab.swarm.deploy import Swarm
from swarmlab.swarm.ready import wait_for
from swarmlab.workload.drive import End, follow, step_row

CONNECT_S = 60.0
CHAIN_ATTEMPTS = 6
BROKEN_INPUT_CACHE = "Broken input cache"  # the assertion that the public report is about
RETRY = "Caught exception"  # how petals' log lines about a retry begin


class WrongChain(RuntimeError):
    """The client uses other servers than the scenario is about."""


@dataclass
class ArmRun:
    """Runs one client and writes everything it says into the history.

    :param args: for the client process, without its fault points
    :param deadline_s: for the generation; what takes longer is a hang
    """

    swarm: Swarm
    scenario: Scenario
    arm: str
    history: HistoryWriter
    args: dict[str, Any]
    deadline_s: float
    _held: list[tuple[str, float, dict[str, Any]]] | None = field(default=None, init=False)
    _fallen: list[str] = field(default_factory=list, init=False)
    _timers: list[threading.Timer] = field(default_factory=list, init=False)
    _faults: list[Lifecycle] = field(default_factory=list, init=False)
    _tokens: int = field(default=0, init=False)
    _retries: int = field(default=0, init=False)
    _error: str | None = field(default=None, init=False)
    _text: list[str] | None = field(default=None, init=False)
    _extra: dict[str, Any] = field(default_factory=dict, init=False)
    _seen_broken_input_cache: bool = field(default=False, init=False)

    def run(self) -> tuple[str, str]:
        """
        :returns: how it ended and a detail for whoever watches; the verdict is the judge's
        """
        for attempt in range(1, CHAIN_ATTEMPTS + 1):
            try:
                return replace(self).run_once()
            except WrongChain as error:
                # this client took another route, so it is no test of the fault
                self._write(
                    "logs", source="orchestrator", level="warning", line=f"attempt {attempt}: {error}"
                )
                if attempt < CHAIN_ATTEMPTS:
                    self._await_new_records()
        raise SwarmFailed(f"{self.scenario.name} / {self.arm}: {CHAIN_ATTEMPTS} clients took another chain")

    def run_once(self) -> tuple[str, str]:
        """One client.

        :raises WrongChain: before any fault, if it does not use the servers that the scenario is about
        """
        started_s = time.monotonic()
        if self.scenario.chain and self._specs:
            self._held = []  # rows of a client on the wrong chain must not count
        name = f"client-{self.scenario.name}-{self.arm}"
        points = [
            {"token": spec.before_token, "span": spec.at_span, "request": spec.request}
            for spec in self._specs
        ]
        unique = [point for index, point in enumerate(points) if point not in points[:index]]
        plain = self.arm == "plain" and self.scenario.workload.plainly_greedy
        kind = "clients.failover:plain" if plain else "clients.failover"
        on_gpu = str(self.args.get("device", "")).startswith("cuda")
        child = self.swarm.spawn(kind, name, {**self.args, "fault_points": unique}, on_gpu=on_gpu)
        try:
            end = follow(child.channel(CONNECT_S), self.deadline_s, self._on_event, self._at_fault_point)
        except (ChannelClosed, TimeoutError) as error:
            end, self._error = End.LOST, f"the client process did not start: {error}"
        except BaseException:
            self._faults.clear()  # whoever ends the run tears the swarm down: nothing is left to heal
            raise
        finally:
            self.swarm.kill_child(child)
            child.close()
            self._heal()
        self._release()
        outcome = self._outcome(end)
        self._write(
            "outcomes",
            outcome=outcome,
            tokens=self._tokens,
            tokens_expected=self.scenario.workload.n_steps,
            error=self._error,
            elapsed_s=time.monotonic() - started_s,
            text=self._text,
            **self._extra,
            seen_broken_input_cache=self._seen_broken_input_cache,
        )
        return outcome, self._error or f"{self._tokens} tokens"

    def _await_new_records(self) -> None:
        """Routes follow the round trips that servers measured to each other, and a server that looked for another
        while that one was still starting says it is unreachable until it announces itself again."""
        before = {record.peer_id: record.expires_at_s for record in self.swarm.snapshot().servers}

        def renewed() -> bool:
            now = {record.peer_id: record.expires_at_s for record in self.swarm.snapshot().servers}
            return all(
                now.get(peer_id, expires_at_s + 1) > expires_at_s for peer_id, expires_at_s in before.items()
            )

        with suppress(TimeoutError):  # a server that is gone announces nothing; the next client will tell
            wait_for(renewed, 2 * self.swarm.spec.update_period_s, "every server has announced itself again")

    @property
    def _specs(self) -> tuple[FaultSpec, ...]:
        return self.scenario.faults

    def _outcome(self, end: End) -> str:
        if end is End.LOST:
            self._error = self._error or "the client process ended without a word"
        if end is End.HANG:
            self._error = self._error or f"not done after {self.deadline_s:g} s"
        return {End.DONE: "done", End.HANG: "hang"}.get(end, "exception")

    def _on_event(self, message: Message) -> None:
        handler = getattr(self, f"_on_{message['event']}", None)
        if handler is not None:
            handler(message)

    def _on_step(self, message: Message) -> None:
        self._write("steps", at_s=message["at_s"], **step_row(message, self._retries))
        self._tokens += 1
        self._retries = 0

    def _on_log(self, message: Message) -> None:
        self._retries += message["line"].startswith(RETRY)
        self._look_for_assertion(message["line"])
        self._write(
            "logs", at_s=message["at_s"], source="client", level=message["level"], line=message["line"]
        )

    def _on_error(self, message: Message) -> None:
        self._error = f"{message['type']}: {message['message']}"
        self._look_for_assertion(self._error)

    def _on_failover(self, message: Message) -> None:
        names = ("token", "cause", "detect_s", "reroute_s", "connect_s", "replay_s", "total_s")
        self._write(
            "failovers",
            at_s=message["at_s"],
            session=0,
            **{name: message[name] for name in names},
            tokens_replayed=message["tokens_replayed"],
            requests=message["requests"],
            failed=message["failed"],
            spans=message["replacements"],
            peers_tried=message["attempts"],
            from_standby=message.get("from_standby", False),
        )

    def _on_floor(self, message: Message) -> None:
        names = ("repeat", "tokens", "connect_s", "prefill_s", "spans")
        self._write("floors", at_s=message["at_s"], **{name: message[name] for name in names})

    def _on_done(self, message: Message) -> None:
        self._text = message.get("text")
        names = ("standby_tokens", "standby_s", "standby_bytes")
        self._extra = {name: message[name] for name in names if name in message}

    def _look_for_assertion(self, text: str) -> None:
        self._seen_broken_input_cache = self._seen_broken_input_cache or BROKEN_INPUT_CACHE in text

    def _at_fault_point(self, message: Message) -> None:
        """The client waits: do what is due here to the servers it really uses."""
        chain = self._names(message["chain"])
        if self.scenario.chain and not self._faults and tuple(chain) != self.scenario.chain:
            raise WrongChain(f"the client uses {', '.join(chain)}, not {', '.join(self.scenario.chain)}")
        self._release()
        here = {"token": message["token"], "at_span": message["span"], "request": message["request"]}
        for spec in due(self._specs, **here):
            target = self._target(spec, chain, is_place=message["span"] is not None)
            if spec.fault in (Fault.KILL, Fault.STOP, Fault.CUT, Fault.LEAVE, Fault.MOVE):
                self._fallen.append(target)
            if spec.after_s is None:
                self._inject(spec, target)
            else:  # the client goes on and meets the fault, or its end, in its own time
                timer = threading.Timer(spec.after_s, self._inject, (spec, target))
                self._timers.append(timer)
                timer.start()

    def _target(self, spec: FaultSpec, chain: Sequence[str], *, is_place: bool) -> str:
        """
        :param is_place: ``chain`` is only the one server about to be asked, so that a role means that one
        """
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
        raise SwarmFailed(f"{self.scenario.name}: nobody else holds blocks {wanted}")

    def _resolve(self, target: str, chain: Sequence[str]) -> str:
        try:
            return resolve(target, chain)
        except ValueError as error:
            raise SwarmFailed(f"{self.scenario.name} / {self.arm}: {error}") from None

    def _inject(self, spec: FaultSpec, target: str) -> None:
        server = self.swarm.servers[target]
        span = server.span
        about = {
            "fault": spec.fault.value,
            "target": target,
            "peer": server.peer_id,
            "span_start": span.start if span else None,
            "span_end": span.end if span else None,
            "at_token": spec.before_token,
        }
        fault = ProcessFault(
            spec.fault,
            target,
            self.swarm,
            lambda: self.swarm.servers[target].pgid,
            seconds=spec.seconds,
            to=spec.to,
        )
        lifecycle = Lifecycle(fault, lambda row: self._write("faults", **row), about)
        self._faults.append(lifecycle)
        try:
            lifecycle.setup()
            lifecycle.inject()
            lifecycle.confirm()
        except FaultFailed:
            pass  # recorded; the judge will not call this run a pass

    def _heal(self) -> None:
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
            about = f"{self.scenario.name} / {self.arm}"
            raise SwarmFailed(f"{about}: the swarm is not whole again: {'; '.join(broken)}")

    def _names(self, chain: Sequence[Mapping[str, Any]]) -> list[str]:
        """Names of the servers that a client says it uses."""
        by_peer = {server.peer_id: name for name, server in self.swarm.servers.items()}
        return [by_peer[place["peer"]] for place in chain if place["peer"] in by_peer]

    def _write(self, kind: str, at_s: float | None = None, **fields: Any) -> None:
        happened_s = time.monotonic() if at_s is None else at_s
        if self._held is not None:
            self._held.append((kind, happened_s, fields))
        else:
            self.history.write(kind, self.arm, at_s=happened_s, scenario=self.scenario.name, **fields)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for kind, happened_s, fields in held:
            self._write(kind, happened_s, **fields)
