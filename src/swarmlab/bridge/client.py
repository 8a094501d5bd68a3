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
from swarmlab.bridge.models import decode, open_checkpoint, plain_run
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
    """Where a scenario wants the client to wait: before a step, or before one of its requests to a span.

    :param token: index of the step, 0 is the prefill
    :param span: None for the whole step, else which span of the chain: first, middle or last
    :param request: with ``span``: before which of the step's requests to it, from 1; a replay counts as one more
    """

    def __init__(self, token: int, span: str | None, request: int, n_blocks: int) -> None:
        self.token, self.span, self.request = token, span, request
        self._n_blocks, self._seen, self._passed = n_blocks, 0, False

    def reached(self, token: int, place: Mapping[str, Any] | None) -> bool:
        """Whether the client is here now, for the first time.

        :param place: the span about to be asked; None at the beginning of a step
        """
        if self._passed or token != self.token or (self.span is None) != (place is None):
            return False
        if place is not None:
            self._seen += self.span == span_role(place["start"], place["end"], self._n_blocks)
        self._passed = place is None or self._seen == self.request
        return self._passed

    def as_dict(self) -> dict[str, Any]:
        return {"token": self.token, "span": self.span, "request": self.request}


def span_role(start: int, end: int, n_blocks: int) -> str:
    """What a span is in its chain."""
    return "first" if start == 0 else "last" if end == n_blocks else "middle"


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``client`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``prompt_ids`` [batch, tokens],
        ``new_tokens``, ``client`` (fields of petals' ClientConfig), ``recovery`` (RecoverySettings by name),
        ``fault_points`` [{token, span, request}], ``states_path``, ``floor_repeats``
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


def plain(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``client:plain`` process: the same generation by plain transformers, without the swarm."""
    reporter = Reporter(connect(channel_path))
    checkpoint = open_checkpoint(args["model_path"])
    reporter.send("ready")
    token_ids, hidden = plain_run(
        checkpoint, np.array(args["prompt_ids"], dtype=np.int64), args["new_tokens"]
    )
    for token, ids in enumerate(token_ids.T.tolist()):
        phase = "prefill" if token == 0 else "decode"
        reporter.send("step", token=token, phase=phase, seconds=None, token_ids=ids)
    save_states(Path(args["states_path"]), {"token_ids": token_ids, "hidden": hidden})
    reporter.send("done", text=decode(checkpoint, token_ids))
    return 0


def save_states(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write what the judge compares; a reader finds the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.rename(path)


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
        self._points = [FaultPoint(**point, n_blocks=len(manager)) for point in args["fault_points"]]
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
        token_ids = [ids.numpy() for ids in self._new_ids]
        hidden = [part.float().numpy() for part in self._hidden]
        # a broken arm may lose rows of the batch on the way: what has no common shape is left out
        parts = {"token_ids": token_ids, "hidden": hidden}
        arrays = {
            name: _joined(one) for name, one in parts.items() if len({part.shape[0] for part in one}) == 1
        }
        save_states(Path(self._args["states_path"]), arrays)

    def text(self) -> list[str] | None:
        """The generated text of each row, if the model comes with a tokenizer."""
        if not self._new_ids or len({ids.shape for ids in self._new_ids}) > 1:
            return None
        return decode(open_checkpoint(self._args["model_path"]), torch.cat(self._new_ids, dim=1).numpy())

    def _wait_at_fault_points(self) -> None:
        for point in self._points:
            if point.reached(self._token, None):
                self._reporter.pause(**point.as_dict(), chain=arms.chain_of(self.session))

    def _before_span(self, start: int, end: int, peer_id: str) -> None:
        place = {"start": start, "end": end, "peer": peer_id}
        for point in self._points:
            if point.reached(self._token, place):
                self._reporter.pause(**point.as_dict(), chain=[place])

    def _on_failover(self, event: dict[str, Any]) -> None:
        self.failovers.append(event)
        self._reporter.send("failover", token=self._token, **event)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=1)
