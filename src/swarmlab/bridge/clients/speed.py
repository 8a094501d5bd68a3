"""A client process of +exp=recovery_speed: session after session, in each of which servers die once.

Events on the channel (JSON lines): ``next`` (the answer is what to do, see ``SpeedClient.run``, or ``stop``), ``at``
(the servers in use may be cut off now; waits for the answer), ``recovered`` (it may be confirmed now; waits, too),
``failover``, ``floor``, ``result``, ``log`` and, last, ``done``. ``at_s`` is of the system's monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure

from swarmlab.analysis import metrics
from swarmlab.bridge.clients import arms
from swarmlab.bridge.clients.calm import calm_rebuild
from swarmlab.bridge.clients.failover import Reporter, _LogToReporter, load_model
from swarmlab.bridge.clients.floor import connect_and_prefill, joint_floor
from swarmlab.bridge.inference.local_session import LocalSession
from swarmlab.bridge.models import load_plain, open_checkpoint, prompts
from swarmlab.bridge.session import FaultTolerantSession
from swarmlab.channel import Channel, connect

NEXT_S = 300.0  # servers come back in between
GO_S = 120.0
STEPS_BEFORE, STEPS_AFTER = 8, 8  # single tokens around the failure
DIAL_S, REDIAL_S = 30.0, 0.1
MOST_STEPS = 100  # that the client takes to learn who is there
SETTLE_S, POLL_S = 5.0, 0.005
STANDBY = "swarmlab_standby"

Place = Mapping[str, Any]


def main(args: Mapping[str, Any], channel_path: str) -> int:
    """Entry of a ``clients.speed`` process.

    :param args: ``arm``, ``model_path``, ``dht_prefix``, ``initial_peers``, ``client`` (fields of petals'
        ClientConfig), ``recovery`` (RecoverySettings by name), ``quant`` of the servers' blocks, ``floor_repeats``,
        ``tolerance``, ``seed``
    """
    channel = connect(channel_path)
    reporter = Reporter(channel)
    logging.getLogger("petals").addHandler(_LogToReporter(reporter))
    client = SpeedClient(args, load_model(args), channel, reporter)
    with torch.inference_mode():
        while True:
            reporter.send("next")
            wanted = channel.recv(NEXT_S)
            if wanted.get("stop"):
                break
            client.run(wanted)
    reporter.send("done")
    return 0


class SpeedClient:
    """Sessions of one arm, each with one failure at the same place."""

    def __init__(self, args: Mapping[str, Any], model: Any, channel: Channel, reporter: Reporter) -> None:
        self._args, self._model, self._channel, self._reporter = args, model, channel, reporter
        self._manager = model.transformer.h.sequence_manager
        self._checkpoint = open_checkpoint(args["model_path"])
        self._plain = load_plain(self._checkpoint, args.get("quant", "none"))
        self._right: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._failovers: list[dict[str, Any]] = []

    def run(self, wanted: Mapping[str, Any]) -> None:
        """One session.

        :param wanted: ``history`` (positions at the failure), ``n_failed`` spans, ``servers`` (places to warm up) and
            ``repeat``
        """
        length = wanted["history"] + STEPS_AFTER
        inputs, right = self._reference(wanted["history"], length)
        self._warm_up(wanted["servers"], inputs[:, : wanted["history"]], length)
        with self._open(length) as session:
            outputs, seconds = self._generate(session, inputs, wanted["history"], wanted["n_failed"])
            for event in self._failovers:
                self._reporter.send("failover", **event)
            self._measure_floor(session, wanted)
            diff = metrics.max_abs_diff(outputs.numpy(), right.numpy())
            allowed = self._args["tolerance"] * max(1.0, metrics.root_mean_square(right.numpy()))
            cost = session.standby_cost
            self._reporter.send(
                "result",
                repeat=wanted["repeat"],
                outcome="identical" if diff is not None and diff <= allowed else "wrong",
                max_abs_diff=diff,
                step_s=seconds[:STEPS_BEFORE],
                step_after_s=seconds[STEPS_BEFORE],
                standby_tokens=cost.tokens,
                standby_s=cost.seconds,
                standby_bytes=cost.n_bytes,
                cache_bytes=self._cache_bytes(length) if self._args["arm"] == STANDBY else 0,
            )

    def _open(self, length: int) -> FaultTolerantSession:
        """A session whose recoveries are collected, each with its end."""
        failovers = self._failovers = []
        session = arms.open_session(
            self._args["arm"],
            self._manager,
            length,
            model_path=self._args["model_path"],
            recovery=self._args["recovery"],
            on_event=lambda event: failovers.append({**event, "at_s": time.monotonic()}),
        )
        assert isinstance(session, FaultTolerantSession)
        return session

    def _reference(self, history: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and right outputs of a text of that length, [1, positions, hidden], of the plain model alone."""
        if history not in self._right:
            ids = torch.from_numpy(prompts(self._checkpoint, 1, length, self._args["seed"]))
            inputs = self._model.model.embed_tokens(ids)
            self._right[history] = inputs, LocalSession(self._plain).step(inputs).float()
        return self._right[history]

    def _warm_up(self, servers: Sequence[Place], inputs: torch.Tensor, length: int) -> None:
        """One prefill at each server, as had by one that has served others: the first one after a start is slow.

        libp2p does not dial a server that was just gone for some seconds, though it is back: that is waited for. Then a
        session takes steps until the client knows that everybody is there.
        """
        until_s = time.monotonic() + DIAL_S
        for place in servers:
            while True:
                try:
                    connect_and_prefill(self._manager, length, place, inputs)
                    break
                except ControlFailure:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(REDIAL_S)
        with self._open(MOST_STEPS) as session:
            for _ in range(MOST_STEPS):
                session.step(inputs[:, :1])
                if not session.avoided:
                    break
                time.sleep(REDIAL_S)

    def _generate(
        self, session: FaultTolerantSession, inputs: torch.Tensor, history: int, n_failed: int
    ) -> tuple[torch.Tensor, list[float]]:
        """Feed the text, the last tokens one by one; the failure comes when ``history`` positions are cached."""
        prompt = history - min(STEPS_BEFORE, history - 1)
        outputs, seconds = [session.step(inputs[:, :prompt])], []
        if self._args["arm"] == STANDBY:  # in a text of that length they would have been fed long ago
            self._wait(lambda: session.standby_cost.tokens >= prompt * len(session.chain))
        for position in range(prompt, inputs.shape[1]):
            if position == history:
                self._reporter.send("at", chain=arms.chain_of(session))
                self._channel.recv(GO_S)
                # let repairs that began while we waited end, so that nothing but them shares their time
                self._wait(lambda: len(self._failovers) >= n_failed)
                self._reporter.send("recovered")
                self._channel.recv(GO_S)
            started_at_s = time.monotonic()
            outputs.append(session.step(inputs[:, position : position + 1]))
            seconds.append(time.monotonic() - started_at_s)
        return torch.cat(outputs, dim=1).float(), seconds

    @staticmethod
    def _wait(happened: Callable[[], bool]) -> None:
        """Wait for something that mostly happens soon; the record will tell if it did not."""
        until_s = time.monotonic() + SETTLE_S
        while not happened() and time.monotonic() < until_s:
            time.sleep(POLL_S)

    def _measure_floor(self, session: FaultTolerantSession, wanted: Mapping[str, Any]) -> None:
        """What the recoveries of this session could not beat, together, on the very servers that took over; and what
        our own code takes for the same without a failure.
        """
        step = next((event["step"] for event in self._failovers), 0)
        places = [place for event in self._failovers for place in event["replacements"]]
        histories = [session.history_of(place["start"], step) for place in places]
        known = [history for history in histories if history is not None]
        if not places or len(known) < len(places):
            return
        for take in range(self._args["floor_repeats"]):
            connect_s, prefill_s = joint_floor(self._manager, session.max_length, places, known)
            self._reporter.send(
                "floor",
                repeat=wanted["repeat"],
                take=take,
                tokens=int(np.prod(known[0].shape[:2])),
                connect_s=connect_s,
                prefill_s=prefill_s,
                calm_s=calm_rebuild(session, places, step),
                spans=places,
            )

    def _cache_bytes(self, length: int) -> int:
        """Attention caches that standbys of all blocks take: keys and values in float32."""
        config = self._model.config
        head_dim = config.hidden_size // config.num_attention_heads
        return 2 * config.num_hidden_layers * length * config.num_key_value_heads * head_dim * 4
