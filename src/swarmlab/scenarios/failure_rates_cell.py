"""One generation of +exp=failure_rates: a client, servers that lose messages meanwhile, and what both report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from swarmlab.analysis.failure_rates_grid import Cell, How
from swarmlab.analysis.metrics import PLANNED
from swarmlab.channel import ChannelClosed, Message
from swarmlab.faults.session_reset import Chances, ResetControl, is_confirmed
from swarmlab.record.writer import HistoryWriter
from swarmlab.swarm.deploy import Swarm
from swarmlab.workload.drive import End, follow, step_row

CONNECT_S = 60.0
GRACE_S = 90.0  # to load the model, and for a retry under way to end
LAST_STAGE = "stage4"


@dataclass(frozen=True)
class Result:
    """How a generation ended, for whoever plans and watches.

    :param failures: positions replayed and seconds lost, of each
    """

    outcome: str
    detail: str
    elapsed_s: float = 0.0
    failures: tuple[tuple[float, float], ...] = ()


@dataclass
class CellRun:
    """Runs one client in one cell and writes everything into the history.

    :param predicted_s: what the closed form expects; None if unknown
    :param bound_s: of the generation; one that takes longer is unfinished
    """

    swarm: Swarm
    controls: dict[str, ResetControl]
    cell: Cell
    arm: str
    repeat: int
    how: How
    predicted_s: float | None
    history: HistoryWriter
    args: dict[str, Any]
    bound_s: float
    seed: int
    _tokens: int = field(default=0, init=False)
    _error: str | None = field(default=None, init=False)
    _late: bool = field(default=False, init=False)
    _done: dict[str, Any] = field(default_factory=dict, init=False)
    _failures: list[tuple[float, float]] = field(default_factory=list, init=False)

    def skip(self) -> Result:
        """Record that the cell is computed, not run."""
        self._outcome_row("simulated")
        return Result("simulated", f"would take about {self.predicted_s or 0:.0f} s")

    def run(self) -> Result:
        name = f"client-{self.cell.name}-{self.arm}-{self.repeat}"
        kind = "clients.failover:plain" if self.arm == "plain" else "clients.rates"
        child = self.swarm.spawn(kind, name, {**self.args, "bound_s": self.bound_s})
        with self._losses_recorded():
            try:
                end = follow(
                    child.channel(CONNECT_S),
                    self.bound_s + GRACE_S,
                    self._on_event,
                    self._let_messages_be_lost,
                )
            except (ChannelClosed, TimeoutError) as error:
                end, self._error = End.LOST, f"the client process did not start: {error}"
            finally:
                self.swarm.kill_child(child)
                child.close()
        outcome = self._outcome(end)
        self._outcome_row(outcome)
        elapsed_s = self._done.get("elapsed_s") or 0.0
        detail = self._error or f"{self._tokens} tokens, {len(self._failures)} failures, {elapsed_s:.1f} s"
        return Result(outcome, detail, elapsed_s, tuple(self._failures))

    def _outcome(self, end: End) -> str:
        if end is End.LOST:
            self._error = self._error or "the client process ended without a word"
        if self._late or end is End.HANG:
            return "unfinished"
        return "done" if end is End.DONE else "exception"

    def _outcome_row(self, outcome: str) -> None:
        self._write(
            "outcomes",
            outcome=outcome,
            how=self.how,
            length=self.cell.length,
            p=self.cell.p,
            predicted_s=self.predicted_s,
            bound_s=self.bound_s,
            tokens=self._tokens,
            tokens_expected=self.cell.length,
            elapsed_s=self._done.get("elapsed_s"),
            steps_run=self._done.get("steps_run"),
            restarts=self._done.get("restarts"),
            error=self._error,
        )

    def _let_messages_be_lost(self, _message: Message) -> None:
        """The client has warmed up: from here on messages get lost."""
        if self.cell.p == 0:
            return
        for name, control in self.controls.items():
            # the last stage's reply is the fifth send of a step, back to the client
            reply = self.cell.p if name == LAST_STAGE else 0.0
            cell = f"{self.cell.name} {self.arm} {self.repeat}"
            control.set(Chances(cell, self.cell.p, reply, self.seed))
            self._fault_row(name, "setup", True, f"p = {self.cell.p:g} per request, {reply:g} per reply")

    @contextmanager
    def _losses_recorded(self) -> Iterator[None]:
        try:
            yield
        finally:
            for name, control in self.controls.items():
                control.clear()
                for line in control.news():
                    self._loss_row(name, line)
                if self.cell.p:
                    self._fault_row(
                        name, "heal", not control.switch_path.exists(), "nothing is lost any more"
                    )

    def _loss_row(self, name: str, line: dict[str, Any]) -> None:
        if line["stage"] == "inject":
            detail = f"{line['method']} {line['message']}, message {line['n_draws']} of this generation"
            self._fault_row(name, "inject", True, detail, line["at_s"])
        else:
            detail = f"session's cache gone: {line['before_bytes']} -> {line['after_bytes']} bytes held"
            self._fault_row(name, "confirm", is_confirmed(line), detail, line["at_s"])

    def _fault_row(self, name: str, stage: str, ok: bool, detail: str, at_s: float | None = None) -> None:
        server = self.swarm.servers[name]
        span = server.span
        self._write(
            "faults",
            at_s,
            fault="reset",
            target=name,
            peer=server.peer_id,
            span_start=span.start if span else None,
            span_end=span.end if span else None,
            stage=stage,
            at_token=None,
            ok=ok,
            detail=detail,
        )

    def _on_event(self, message: Message) -> None:
        handler = getattr(self, f"_on_{message['event']}", None)
        if handler is not None:
            handler(message)

    def _on_step(self, message: Message) -> None:
        session = message.get("session", 0)
        self._write("steps", message["at_s"], **{**step_row(message, 0), "session": session})
        self._tokens = message["token"] + 1

    def _on_failover(self, message: Message) -> None:
        parts = ("detect_s", "reroute_s", "connect_s", "replay_s", "requests", "failed")
        self._write(
            "failovers",
            message["at_s"],
            session=message["session"],
            token=message["token"],
            cause=message["cause"],
            total_s=message["total_s"],
            tokens_replayed=message["tokens_replayed"],
            spans=message.get("replacements"),
            peers_tried=message.get("attempts"),
            **{name: message.get(name) for name in parts},
        )
        if message["cause"] not in PLANNED:
            self._failures.append((message["tokens_replayed"], message["total_s"]))

    def _on_log(self, message: Message) -> None:
        self._write("logs", message["at_s"], source="client", level=message["level"], line=message["line"])

    def _on_error(self, message: Message) -> None:
        self._error = f"{message['type']}: {message['message']}"

    def _on_late(self, _message: Message) -> None:
        self._late = True

    def _on_done(self, message: Message) -> None:
        self._done = message

    def _write(self, kind: str, at_s: float | None = None, **fields: Any) -> None:
        self.history.write(kind, self.arm, at_s=at_s, scenario=self.cell.name, repeat=self.repeat, **fields)
