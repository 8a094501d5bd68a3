"""A client process: runs one arm of one scenario and reports every step to the orchestrator.

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

from swarmlab.bridge.clients import arms
from swarmlab.bridge.clients.fault_points import FaultPoint
from swarmlab.bridge.clients.floor import measure_floors
from swarmlab.bridge.clients.workloads import Generation
from swarmlab.bridge.models import decode, open_checkpoint, plain_follow, plain_run
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


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``clients.failover`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``prompt_ids`` [batch, tokens],
        ``max_length``, ``work`` (see swarmlab.bridge.clients.workloads), ``client`` (fields of petals' ClientConfig),
        ``recovery`` (RecoverySettings by name), ``fault_points`` [{token, span, request}], ``states_path``,
        ``floor_repeats``
    """
    reporter = Reporter(connect(channel_path))
    logging.getLogger("petals").addHandler(_LogToReporter(reporter))
    model = load_model(args)
    reporter.send("ready")
    run = ClientRun(args, model, reporter)
    try:
        run.generate()
    except Exception as error:  # noqa: BLE001 - whatever an arm raises is its outcome
        reporter.send("error", type=type(error).__name__, message=str(error))
    run.save_states()
    if isinstance(run.session, FaultTolerantSession) and run.failovers and args["floor_repeats"]:
        manager = model.transformer.h.sequence_manager
        for floor in measure_floors(manager, run.session, run.failovers, args["floor_repeats"]):
            reporter.send("floor", **floor)
    reporter.send("done", text=run.text(), **run.standby_cost())
    run.session.close()
    return 0


def plain(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``clients.failover:plain`` process: the greedy generation by transformers alone, without the swarm.

    :param args: as in :func:`main`; ``quant`` of the servers' blocks; ``given_path``: states of a client whose text is
        followed instead, on ``device``, because the model is too large to generate with
    """
    reporter = Reporter(connect(channel_path))
    checkpoint = open_checkpoint(args["model_path"])
    reporter.send("ready")
    prompt = np.array(args["prompt_ids"], dtype=np.int64)
    quant, given_path = args.get("quant", "none"), args.get("given_path")
    if given_path and Path(given_path).exists():
        with np.load(given_path) as given:
            token_ids, hidden = plain_follow(checkpoint, prompt, given["token_ids"], quant, args["device"])
    else:
        token_ids, hidden = plain_run(checkpoint, prompt, args["work"]["new_tokens"], quant)
    for token, ids in enumerate(token_ids.T.tolist()):
        phase = "prefill" if token == 0 else "decode"
        reporter.send("step", token=token, phase=phase, seconds=None, token_ids=ids)
    save_states(Path(args["states_path"]), {"token_ids": token_ids, "hidden": hidden})
    reporter.send("done", text=decode(checkpoint, token_ids))
    return 0


def load_model(args: Mapping[str, Any]) -> Any:
    """The petals client model: embeddings and head are local, blocks are in the swarm."""
    from petals import AutoDistributedModelForCausalLM

    model = AutoDistributedModelForCausalLM.from_pretrained(
        args["model_path"],
        initial_peers=args["initial_peers"],
        dht_prefix=args["dht_prefix"],
        torch_dtype=torch.float32,
        **args["client"],
    )
    # all arms make the same number of tokens; petals reserves caches for exactly so many
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    return model


def save_states(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write what the judge compares; a reader finds the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.rename(path)


class ClientRun:
    """One generation, every step of which passes through here."""

    def __init__(self, args: Mapping[str, Any], model: Any, reporter: Reporter) -> None:
        self._args, self._reporter = args, reporter
        manager = model.transformer.h.sequence_manager
        self.failovers: list[dict[str, Any]] = []
        self._points = [FaultPoint(**point, n_blocks=len(manager)) for point in args["fault_points"]]
        self._step_index, self._fed = 0, 0
        self._hidden: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []
        self._sequences: np.ndarray | None = None
        self.session = arms.open_session(
            args["arm"],
            manager,
            args["max_length"],
            model_path=args["model_path"],
            recovery=args["recovery"],
            on_event=self._on_failover,
        )
        if any(point.span is not None for point in self._points):
            arms.observe_spans(self.session, self._before_span)
        self._run_step, self.session.step = self.session.step, self._step
        prompt = torch.tensor(args["prompt_ids"], dtype=torch.int64)
        self._prompt_tokens = prompt.shape[1]
        self._generation = Generation(model, self.session, args["work"], prompt)

    def generate(self) -> None:
        sequences = self._generation.run()
        self._sequences = None if sequences is None else sequences.numpy()

    def save_states(self) -> None:
        """Outputs of the last block, predicted tokens and final sequences, for the judge; whatever there is."""
        # a broken arm may lose rows of the batch on the way: what has no common shape is left out
        parts = {"token_ids": self._predicted, "hidden": self._hidden}
        arrays = {
            name: np.concatenate(one, axis=1)
            for name, one in parts.items()
            if len({p.shape[0] for p in one}) == 1
        }
        if self._sequences is not None:
            arrays["sequences"] = self._sequences
        save_states(Path(self._args["states_path"]), arrays)

    def standby_cost(self) -> dict[str, Any]:
        """What warm standbys cost: tokens (batch times positions) sent to them, seconds of their servers, traffic."""
        if not isinstance(self.session, FaultTolerantSession):
            return {}
        cost = self.session.standby_cost
        return {
            "standby_tokens": cost.tokens, "standby_s": cost.seconds, "standby_bytes": cost.n_bytes,
        }  # fmt: skip

    def text(self) -> list[str] | None:
        """The generated text of each row, if the model comes with a tokenizer."""
        if not self._predicted or len({ids.shape for ids in self._predicted}) > 1:
            return None
        return decode(open_checkpoint(self._args["model_path"]), np.concatenate(self._predicted, axis=1))

    def _step(self, inputs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Stands in front of the session's own ``step``: waits at fault points, times, and reports."""
        for point in self._points:
            if point.reached(self._step_index, None):
                self._reporter.pause(**point.as_dict(), chain=arms.chain_of(self.session))
        started_at_s = time.monotonic()
        hidden = self._run_step(inputs, *args, **kwargs)
        seconds = time.monotonic() - started_at_s
        ids = self._generation.predict(hidden)
        self._hidden.append(hidden.float().numpy())
        self._predicted.append(ids.numpy())
        self._fed += inputs.shape[1]
        self._reporter.send(
            "step",
            token=self._step_index,
            phase="prefill" if self._fed <= self._prompt_tokens else "decode",
            seconds=seconds,
            token_ids=ids[:, 0].tolist(),
        )
        self._step_index += 1
        return hidden

    def _before_span(self, start: int, end: int, peer_id: str) -> None:
        place = {"start": start, "end": end, "peer": peer_id}
        for point in self._points:
            if point.reached(self._step_index, place):
                self._reporter.pause(**point.as_dict(), chain=[place])

    def _on_failover(self, event: dict[str, Any]) -> None:
        self.failovers.append(event)
        self._reporter.send("failover", token=self._step_index, **event)
