"""A client process: runs one arm of one scenario token by token and reports everything to the orchestrator.

Events on the channel (JSON lines): ``ready``, ``at`` (a fault point; waits for the answer), ``step``, ``failover``,
``log``, ``floor``, ``error`` and, last, ``done``. All times ``at_s`` are of the system's monotonic clock, which all
processes of one machine share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swarmlab.bridge import arms
from swarmlab.bridge.floor import measure_floors
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.channel import Channel, connect

GO_S = 120.0  # longest wait at a fault point


class Reporter:
    """Sends events from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, event: str, **fields: Any) -> None:
        self._channel.send({"event": event, "at_s": time.monotonic(), **fields})

    def pause(self, **fields: Any) -> None:
        """Report a fault point and wait until the orchestrator says go."""
        self.send("at", **fields)
        self._channel.recv(GO_S)


class _LogToReporter(logging.Handler):
    """petals tells of its retries in log lines only."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.send("log", level=record.levelname.lower(), line=record.getMessage())


class FaultPoint:
    """Where a scenario wants the client to wait: before a token's step, or before a span gets its part of it.

    :param token: index of the step, 0 is the prefill
    :param span: None for the whole step, else which span of the chain: first, middle or last
    """

    def __init__(self, token: int, span: str | None, n_blocks: int) -> None:
        self.token, self.span, self._n_blocks = token, span, n_blocks
        self.passed = False

    def is_here(self, token: int, start: int | None = None, end: int | None = None) -> bool:
        if self.passed or token != self.token or (self.span is None) != (start is None):
            return False
        return self.span is None or self.span == span_role(start or 0, end or 0, self._n_blocks)


def span_role(start: int, end: int, n_blocks: int) -> str:
    """What a span is in its chain."""
    return "first" if start == 0 else "last" if end == n_blocks else "middle"


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``client`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``prompt_ids`` [batch, tokens],
        ``new_tokens``, ``client`` (fields of petals' ClientConfig), ``recovery`` (RecoverySettings by name),
        ``fault_points`` [{token, span}], ``states_path``, ``floor_repeats``
    """
    reporter = Reporter(connect(channel_path))
    logging.getLogger("petals").addHandler(_LogToReporter(reporter))
    model = load_model(args)
    reporter.send("ready")
    run = _Run(args, model, reporter)
    try:
        with torch.inference_mode():
            run.generate()
    except Exception as error:  # noqa: BLE001 - whatever an arm raises is its outcome
        reporter.send("error", type=type(error).__name__, message=str(error))
    run.save_states()
    if isinstance(run.session, FaultTolerantSession) and run.failovers and args["floor_repeats"]:
        floors = measure_floors(
            model.transformer.h.sequence_manager, run.session, run.failovers, args["floor_repeats"]
        )
        for floor in floors:
            reporter.send("floor", **floor)
    reporter.send("done", text=run.text())
    run.session.close()
    return 0


def load_model(args: Mapping[str, Any]) -> Any:
    """The petals client model: embeddings and head are local, blocks are in the swarm."""
    from petals import AutoDistributedModelForCausalLM

    return AutoDistributedModelForCausalLM.from_pretrained(
        args["model_path"],
        initial_peers=args["initial_peers"],
        dht_prefix=args["dht_prefix"],
        torch_dtype=torch.float32,
        **args["client"],
    )


class _Run:
    """One greedy generation."""

    def __init__(self, args: Mapping[str, Any], model: Any, reporter: Reporter) -> None:
        self._args, self._model, self._reporter = args, model, reporter
        manager = model.transformer.h.sequence_manager
        self._prompt = torch.tensor(args["prompt_ids"], dtype=torch.int64)
        self.failovers: list[dict[str, Any]] = []
        self._token = 0
        self._points = [
            FaultPoint(point["token"], point["span"], len(manager)) for point in args["fault_points"]
        ]
        self._hidden: list[torch.Tensor] = []
        self._new_ids: list[torch.Tensor] = []
        self.session = arms.open_session(
            args["arm"],
            manager,
            self._prompt.shape[1] + args["new_tokens"],
            recovery=args["recovery"],
            on_event=self._on_failover,
        )
        if any(point.span is not None for point in self._points):
            arms.observe_spans(self.session, self._before_span)

    def generate(self) -> None:
        """Feed the prompt, then every new token; report each step."""
        embed, norm, head = self._model.model.embed_tokens, self._model.model.norm, self._model.lm_head
        ids = self._prompt
        for token in range(self._args["new_tokens"]):
            self._token = token
            self._wait_at_fault_points()
            started_at_s = time.monotonic()
            hidden = self.session.step(embed(ids))
            self._hidden.append(hidden)
            ids = head(norm(hidden[:, -1:])).argmax(dim=-1)
            seconds = time.monotonic() - started_at_s
            self._new_ids.append(ids)
            self._reporter.send(
                "step",
                token=self._token,
                phase="prefill" if self._token == 0 else "decode",
                seconds=seconds,
                started_at_s=started_at_s,
                token_ids=ids[:, 0].tolist(),
            )

    def save_states(self) -> None:
        """Hidden states after the last block and token ids, for the judge; whatever there is of them."""
        hidden = [part.float().numpy() for part in self._hidden]
        path = Path(self._args["states_path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {"token_ids": _joined([ids.numpy() for ids in self._new_ids])}
        if len({part.shape[0] for part in hidden}) <= 1:  # a broken arm may lose rows of the batch on the way
            arrays["hidden"] = _joined(hidden)
        temporary = path.with_suffix(".part.npz")
        np.savez(temporary, **arrays)
        temporary.rename(path)

    def text(self) -> list[str] | None:
        """The generated text of each row, if the model comes with a tokenizer."""
        model_path = Path(self._args["model_path"])
        if not (model_path / "tokenizer.json").exists() or not self._new_ids:
            return None
        from transformers import AutoTokenizer

        rows = (
            torch.cat(self._new_ids, dim=1)
            if len({i.shape for i in self._new_ids}) == 1
            else self._new_ids[0]
        )
        return AutoTokenizer.from_pretrained(model_path).batch_decode(rows)

    def _wait_at_fault_points(self) -> None:
        for point in self._points:
            if point.is_here(self._token):
                point.passed = True
                self._reporter.pause(token=self._token, span=None, chain=arms.chain_of(self.session))

    def _before_span(self, start: int, end: int, peer_id: str) -> None:
        for point in self._points:
            if point.is_here(self._token, start, end):
                point.passed = True
                place = {"start": start, "end": end, "peer": peer_id}
                self._reporter.pause(token=self._token, span=point.span, chain=[place])

    def _on_failover(self, event: dict[str, Any]) -> None:
        self.failovers.append(event)
        self._reporter.send("failover", token=self._token, **event)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=1) if parts else np.zeros((0, 0), dtype=np.float32)
