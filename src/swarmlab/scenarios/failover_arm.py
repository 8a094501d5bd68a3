"""One arm in one scenario of +exp=failover: a client process, its faults, and what it reports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from swarmlab.channel import ChannelClosed, Message
from swarmlab.errors import SwarmFailed
from swarmlab.faults.schedule import FaultSpec, due
from swarmlab.record.writer import HistoryWriter
from swarmlab.scenarios.failover_faults import ArmFaults
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
    _faults: ArmFaults = field(init=False)
    _tokens: int = field(default=0, init=False)
    _retries: int = field(default=0, init=False)
    _error: str | None = field(default=None, init=False)
    _text: list[str] | None = field(default=None, init=False)
    _extra: dict[str, Any] = field(default_factory=dict, init=False)
    _seen_broken_input_cache: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        about = f"{self.scenario.name} / {self.arm}"
        self._faults = ArmFaults(self.swarm, about, lambda **row: self._write("faults", **row))

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
            self._faults.abandon()
            raise
        finally:
            self.swarm.kill_child(child)
            child.close()
            self._faults.heal()
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
        if self.scenario.chain and not self._faults.has_begun and tuple(chain) != self.scenario.chain:
            raise WrongChain(f"the client uses {', '.join(chain)}, not {', '.join(self.scenario.chain)}")
        self._release()
        here = {"token": message["token"], "at_span": message["span"], "request": message["request"]}
        for spec in due(self._specs, **here):
            self._faults.begin(spec, chain, is_place=message["span"] is not None)

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
