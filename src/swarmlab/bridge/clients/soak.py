"""A client process of +exp=failover_soak: session after session, each compared with the same one without a swarm.

Events on the channel (JSON lines): ``next`` (the answer is the next session's ``work``, ``batch``, ``prompt_tokens``,
``max_length`` and ``seed``, or ``stop``), ``chain`` (the ``peers`` in use), ``step`` (slow ones, and a sample of the
others), ``failover``, ``opening`` (of spans, where nobody failed but it took long), ``log``, ``session`` and, last,
``done``. ``at_s`` is of the system's monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from swarmlab.analysis.soak_compare import Trace, compare, compare_forced
from swarmlab.analysis.stalls import LOST, SLOW_S
from swarmlab.bridge.clients import arms
from swarmlab.bridge.clients.failover import Reporter, _LogToReporter, load_model, save_states
from swarmlab.bridge.clients.workloads import Generation
from swarmlab.bridge.inference.local_session import LocalSession
from swarmlab.bridge.models import load_plain, open_checkpoint, prompts
from swarmlab.channel import connect

SAMPLE = 10  # of the steps that are not slow every so manieth is reported, of the others all
NEXT_S = 60.0
RETRY = "Caught exception"  # how petals' log lines about a retry begin

AfterStep = Callable[[float, torch.Tensor], None]


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``clients.soak`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``client`` (fields of petals'
        ClientConfig), ``recovery`` (RecoverySettings by name), ``tolerance``, ``states_dir`` (for sessions that went
        wrong), ``name``; ``quant`` of the servers' blocks
    """
    channel = connect(channel_path)
    reporter = Reporter(channel)
    client = SoakClient(args, load_model(args), reporter)
    logging.getLogger("petals").addHandler(client.retries)
    while True:
        reporter.send("next")
        wanted = channel.recv(NEXT_S)
        if wanted.get("stop"):
            break
        reporter.send("session", session=wanted["session"], **client.run(wanted))
    reporter.send("done")
    return 0


class _Retries(_LogToReporter):
    """Counts the retries that petals tells of in log lines only."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().startswith(RETRY)
        super().emit(record)


class SoakClient:
    """Runs sessions of one arm with one model."""

    def __init__(self, args: Mapping[str, Any], model: Any, reporter: Reporter) -> None:
        self._args, self._model, self._reporter = args, model, reporter
        self._checkpoint = open_checkpoint(args["model_path"])
        self._plain = load_plain(self._checkpoint, args.get("quant", "none"))
        self._process = psutil.Process()
        self.retries = _Retries(reporter)

    def run(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """One session, and the same without a swarm; what there is to record of it."""
        prompt = torch.from_numpy(
            prompts(self._checkpoint, wanted["batch"], wanted["prompt_tokens"], wanted["seed"])
        )
        watched = _Watched(self._args, self._model, self._reporter, self.retries, wanted)
        trace, error = watched.generate(prompt)
        plain = Traced(self._model, LocalSession(self._plain), wanted["work"], prompt).run()
        found, reference = compare(trace, plain, self._args["tolerance"]), plain
        if not found["identical"]:
            # perhaps two tokens were as good as each other, and the texts went different ways
            forced = self._forced(wanted["work"], prompt, trace)
            on_equal_inputs = compare_forced(trace, forced, self._args["tolerance"])
            if on_equal_inputs["ties"]:
                found, reference = on_equal_inputs, forced
        outcome = "exception" if error else "identical" if found["identical"] else "wrong"
        if outcome == "wrong":
            self._keep(wanted["session"], trace, plain)
        memory = self._process.memory_info()
        return {
            **found,
            **watched.measured(),
            "outcome": outcome,
            "error": error,
            # the judge compares them itself
            "token_ids": [ids.tolist() for ids in trace.token_ids],
            "reference_ids": [ids.tolist() for ids in reference.token_ids],
            "rss_bytes": memory.rss,
            "fds": self._process.num_fds(),
            "threads": self._process.num_threads(),
            "pid": self._process.pid,
        }

    def _forced(self, work: Mapping[str, Any], prompt: torch.Tensor, trace: Trace) -> Trace:
        """What the plain model makes of the very inputs of a session."""
        traced = Traced(self._model, LocalSession(self._plain), work, prompt)
        with torch.inference_mode():
            for args, kwargs in trace.fed:
                traced.session.step(*args, **kwargs)
        return traced.trace

    def _keep(self, session: int, trace: Trace, plain: Trace) -> None:
        """Save what differed, for whoever looks for the reason."""
        path = Path(self._args["states_dir"]) / f"{self._args['name']}.{session}.npz"
        arrays = {
            **{f"hidden_{step}": hidden for step, hidden in enumerate(trace.hidden)},
            **{f"plain_{step}": hidden for step, hidden in enumerate(plain.hidden)},
        }
        save_states(path, arrays)


class Traced:
    """One generation through a session, with the result of every step.

    :param after_step: called with the seconds and the predicted ids of each step
    """

    def __init__(
        self,
        model: Any,
        session: arms.AnySession,
        work: Mapping[str, Any],
        prompt: torch.Tensor,
        after_step: AfterStep | None = None,
    ) -> None:
        self.trace = Trace([], [], None)
        self._after_step = after_step
        self.session = session
        self._generation = Generation(model, session, work, prompt)
        self._run_step, session.step = session.step, self._step

    def run(self) -> Trace:
        sequences = self._generation.run()
        self.trace.sequences = None if sequences is None else sequences.numpy()
        return self.trace

    def _step(self, inputs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        started_at_s = time.monotonic()
        hidden = self._run_step(inputs, *args, **kwargs)
        seconds = time.monotonic() - started_at_s
        ids = self._generation.predict(hidden)
        self.trace.fed.append(((inputs, *args), kwargs))
        self.trace.hidden.append(hidden.float().numpy())
        self.trace.token_ids.append(ids[:, 0].numpy())
        if self._after_step is not None:
            self._after_step(seconds, ids)
        return hidden


class _Watched:
    """One session of the arm in the swarm: reports its steps and recoveries, and keeps what is worth a summary."""

    def __init__(
        self,
        args: Mapping[str, Any],
        model: Any,
        reporter: Reporter,
        retries: _Retries,
        wanted: Mapping[str, Any],
    ) -> None:
        self._args, self._model, self._reporter, self._retries = args, model, reporter, retries
        self._wanted = wanted
        self._seconds: list[float] = []
        self._stalls: list[float] = []
        self._recoveries = self._seen_recoveries = 0
        self._seen_retries = retries.count
        self._history_bytes = 0
        self._elapsed_s = 0.0

    def generate(self, prompt: torch.Tensor) -> tuple[Trace, str | None]:
        """What every step gave, and the error that ended the session."""
        started_at_s = time.monotonic()
        self._session = arms.open_session(
            self._args["arm"],
            self._model.transformer.h.sequence_manager,
            self._wanted["max_length"],
            model_path=self._args["model_path"],
            recovery=self._args["recovery"],
            on_event=self._on_failover,
            on_opening=self._on_opening,
        )
        traced = Traced(self._model, self._session, self._wanted["work"], prompt, self._after_step)
        error = None
        try:
            traced.run()
        except Exception as raised:  # noqa: BLE001 - whatever an arm raises is its outcome
            error = f"{type(raised).__name__}: {raised}"
        self._history_bytes = getattr(self._session, "history_bytes", 0)
        self._session.close()
        self._elapsed_s = time.monotonic() - started_at_s
        return traced.trace, error

    def measured(self) -> dict[str, Any]:
        return {
            "steps": len(self._seconds),
            "step_s_median": float(np.median(self._seconds)) if self._seconds else None,
            "step_s_max": max(self._seconds, default=None),
            "stalls": self._stalls,
            "recoveries": self._recoveries,
            "history_bytes": self._history_bytes,
            "elapsed_s": self._elapsed_s,
        }

    def _after_step(self, seconds: float, ids: torch.Tensor) -> None:
        token, recoveries, retries = len(self._seconds), self._recoveries, self._retries.count
        hit = recoveries - self._seen_recoveries + retries - self._seen_retries
        if hit:  # a server failed under this step, or since the one before
            self._stalls.append(seconds)
        if hit or token == 0:
            peers = [place["peer"] for place in arms.chain_of(self._session) if place["peer"]]
            self._reporter.send("chain", peers=peers)
        if hit or seconds >= SLOW_S or token % SAMPLE == 0:
            self._reporter.send(
                "step",
                session=self._wanted["session"],
                token=token,
                phase="decode" if token >= self._wanted["work"]["prompt_chunks"] else "prefill",
                seconds=seconds,
                retries=retries - self._seen_retries,
                token_ids=ids[:, 0].tolist(),
            )
        self._seconds.append(seconds)
        self._seen_recoveries, self._seen_retries = recoveries, retries

    def _on_opening(self, event: dict[str, Any]) -> None:
        if event["total_s"] >= SLOW_S:
            self._reporter.send("opening", session=self._wanted["session"], token=len(self._seconds), **event)

    def _on_failover(self, event: dict[str, Any]) -> None:
        self._recoveries += event["cause"] in LOST
        self._reporter.send("failover", session=self._wanted["session"], token=len(self._seconds), **event)
