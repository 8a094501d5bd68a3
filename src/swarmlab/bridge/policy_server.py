"""Petals' server with its two questions answered by a policy of ours; it reloads as petals does.

And the unmodified server, watched. Kinds of ``swarmlab.swarm.spec.ServerSpec``: ``policy_server:server``,
``policy_server:original``, and ``policy_server:ours``, our own server in the same experiments.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hivemind.utils import get_dht_time
from petals.server import server as petals_server

from swarmlab.bridge import children, snapshot
from swarmlab.bridge.blocks import slow_disk
from swarmlab.bridge.blocks import source as block_source
from swarmlab.bridge.events import EventLog
from swarmlab.bridge.serving.gates import Gates
from swarmlab.bridge.serving.policies import policy_of
from swarmlab.bridge.serving.watched import Watch, slow_down_when, watch
from swarmlab.placement.memory import Memory
from swarmlab.placement.policy import Policy, Server
from swarmlab.types import Decision, Span, SwarmView


class PolicyServer(petals_server.Server):
    """Asks a policy where petals would ask its own two functions.

    :param policy: holds settings only
    :param seed: of the policy's draws
    """

    def __init__(self, *, policy: Policy, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._policy = policy
        self._rng = np.random.default_rng(seed)
        self._memory: Memory | None = None
        self._span: Span | None = None
        self.decided_target: Span | None = None
        self.decided_reason, self.decided_gain_tps = "", 0.0

    def _choose_blocks(self) -> Any:
        """The target that was decided, for a policy that keeps it; otherwise a new choice, after petals' own wait."""
        target, self.decided_target = self.decided_target, None
        if target is None:
            time.sleep(random.random() * 2 * self.mean_block_selection_delay)
            target = self._policy.choose(self._view(), self._itself(None), self._rng).target
        self._span = target
        return list(target)

    def _should_choose_other_blocks(self) -> bool:
        """One check; where the policy wants to look again before it decides, all of its looks."""
        while True:
            decision = self._policy.reconsider(
                self._view(), self._itself(self._span), self._memory, self._rng
            )
            self._memory = decision.memory
            if decision.moved or decision.check_again_s is None:
                self._note(decision)
                return decision.moved
            if self.stop.wait(decision.check_again_s):
                return False

    def _note(self, decision: Decision) -> None:
        self.decided_target = decision.target if decision.moved and decision.keeps_target else None
        self.decided_reason = decision.reason
        self.decided_gain_tps = decision.predicted_tps - decision.expected_stay_tps

    def _view(self) -> SwarmView:
        n_blocks = len(self.module_uids)
        read = partial(snapshot.read_records, prefix=str(self.dht_prefix), n_blocks=n_blocks)
        records: Any = self.dht.run_coroutine(read)
        return snapshot.view_from_records(records, n_blocks, get_dht_time())[0]

    def _itself(self, span: Span | None) -> Server:
        n_blocks: Any = self.num_blocks  # petals' own check has made sure that it is a number
        return Server(self.dht.peer_id.to_base58(), n_blocks, self.server_info.throughput, span)


def original(args: dict[str, Any], channel: str) -> None:
    """The unmodified server of petals, watched.

    :param args: ``argv``; ``events_path``, ``gate_dir``, ``seed``, ``read_delay_s``, ``slow_when`` (a file: the disk is
        slow from the moment that it is there), ``mean_choice_delay_s`` (petals' command line has no option for it)
    """
    _run(args, channel, petals_server.Server, "petals", {})


def server(args: dict[str, Any], channel: str) -> None:
    """As :func:`original`, with a policy.

    :param args: the same, and ``policy`` and ``policy_settings`` (JSON)
    """
    options = {
        "policy": policy_of(args["policy"], args.get("policy_settings")),
        "seed": int(args.get("seed", 0)),
    }
    _run(args, channel, PolicyServer, args["policy"], options)


def ours(args: dict[str, Any], channel: str) -> None:
    """Swarmlab's own server, whose disk becomes slow as that of the others does.

    :param args: as ``swarmlab.bridge.server.server``, and ``slow_when``
    """
    from swarmlab.bridge import server as own

    slow_down_when(Path(args["slow_when"]), float(args["read_delay_s"]))
    own.server({**args, "read_delay_s": "0"}, channel)


def _run(
    args: Mapping[str, Any], channel: str, server_class: Any, policy: str, keywords: dict[str, Any]
) -> None:
    seed = int(args.get("seed", 0))
    random.seed(seed)  # of petals' waits; and numpy's of its simulation of the swarm
    np.random.seed(seed)  # noqa: NPY002  petals draws from it
    found = Watch(EventLog(args.get("events_path")), Gates(args.get("gate_dir")), policy)
    if "mean_choice_delay_s" in args:
        keywords["mean_block_selection_delay"] = float(args["mean_choice_delay_s"])
    delay_s = float(args.get("read_delay_s", 0.0))
    if "slow_when" in args:
        slow_down_when(Path(args["slow_when"]), delay_s)
    else:
        slow_disk.install(delay_s)
    block_source.install(args)  # before the watch, which measures whatever loads blocks
    entry: Any = children.run_server
    entry.Server = functools.partial(watch(server_class, found), **keywords)
    children.server({"argv": args["argv"]}, channel)
