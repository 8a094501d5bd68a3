"""A client process of +exp=failure_rates: one generation by one arm, position by position, timed.

Events on the channel (JSON lines): ``ready``, ``at`` (before anything can be lost; waits for the answer), ``step``,
``failover``, ``log``, ``error`` and, last, ``done``. Word embeddings and logits are computed between the steps and are
not timed, as in the paper.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from swarmlab.bridge.clients import rate_arms
from swarmlab.bridge.clients.failover import Reporter, _LogToReporter, load_model
from swarmlab.bridge.clients.rate_arms import Lost, RateArm
from swarmlab.channel import connect

WARM_UP_STEPS = 4


class TimeIsUp(Exception):
    """The generation has taken as long as it may."""


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``clients.rates`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``client`` (fields of petals'
        ClientConfig), ``recovery`` (RecoverySettings by name), ``prefix_ids`` [1, tokens], ``length`` (positions in
        all), ``bound_s`` (of the generation)
    """
    reporter = Reporter(connect(channel_path))
    logging.getLogger("petals").addHandler(_LogToReporter(reporter))
    model = load_model(args)
    reporter.send("ready")
    run = RateRun(args, model, reporter)
    with torch.inference_mode():
        run.warm_up()
        reporter.pause()
        try:
            run.generate()
        except TimeIsUp:
            reporter.send("late")
        except Exception as error:  # noqa: BLE001 - whatever an arm raises is its outcome
            reporter.send("error", type=type(error).__name__, message=str(error))
        reporter.send("done", elapsed_s=run.elapsed_s, steps_run=run.steps_run, restarts=run.restarts)
        run.close()
    return 0


class RateRun:
    """The clock runs while a session is opened and while a position is computed, failures and all."""

    def __init__(self, args: Mapping[str, Any], model: Any, reporter: Reporter) -> None:
        self._args, self._model, self._reporter = args, model, reporter
        self._manager = model.transformer.h.sequence_manager
        self._prefix = torch.tensor(args["prefix_ids"], dtype=torch.int64)
        self._arm: RateArm | None = None
        self._token = 0
        self.elapsed_s = 0.0
        self.steps_run = self.restarts = 0

    def warm_up(self) -> None:
        """Connections are made and code is loaded before the clock runs; nothing is lost yet."""
        arm = self._begin()
        for _ in range(min(WARM_UP_STEPS, self._args["length"])):
            arm.step(self._embed(self._prefix[:, :1]))
        arm.close()

    def generate(self) -> None:
        """
        :raises TimeIsUp: at a step's end, when the bound is passed
        """
        with self._clock():
            self._arm = self._begin()
        while True:
            try:
                self._generate_once(self._arm)
                return
            except Lost:
                self._check_time()
                self._restart()

    def _restart(self) -> None:
        before_s = self.elapsed_s
        with self._clock():
            self.close()
            self._arm = self._begin()
        total_s = self.elapsed_s - before_s
        self._tell({"cause": "restart", "total_s": total_s, "tokens_replayed": self._token})
        self.restarts += 1

    def close(self) -> None:
        if self._arm is not None:
            self._arm.close()
            self._arm = None

    def _generate_once(self, arm: RateArm) -> None:
        given, ids = self._prefix.shape[1], self._prefix[:, :1]
        for token in range(self._args["length"]):
            self._token = token
            if token < given:
                ids = self._prefix[:, token : token + 1]
            inputs = self._embed(ids)
            before_s = self.elapsed_s
            self.steps_run += 1
            with self._clock():
                hidden = arm.step(inputs)
            ids = self._predict(hidden)
            self._reporter.send(
                "step",
                session=self.restarts,
                token=token,
                phase="prefill" if token == 0 else "decode",
                seconds=self.elapsed_s - before_s,
                token_ids=ids[:, 0].tolist(),
            )
            self._check_time()

    def _begin(self) -> RateArm:
        return rate_arms.begin(
            self._args["arm"],
            self._manager,
            self._args["length"],
            model_path=self._args["model_path"],
            recovery=self._args["recovery"],
            on_failure=self._tell,
        )

    def _tell(self, event: dict[str, Any]) -> None:
        self._reporter.send("failover", session=self.restarts, token=self._token, **event)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self._model.model.embed_tokens(ids)

    def _predict(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(self._model.model.norm(hidden[:, -1:])).argmax(dim=-1)

    def _check_time(self) -> None:
        if self.elapsed_s > self._args["bound_s"]:
            raise TimeIsUp

    @contextmanager
    def _clock(self) -> Iterator[None]:
        started_at_s = time.monotonic()
        try:
            yield
        finally:
            self.elapsed_s += time.monotonic() - started_at_s
