"""+exp=failover_soak: clients generate for minutes while servers are killed, hung, slowed and restarted at random.

Every session is compared, token by token and hidden state by hidden state, with the same generation without a swarm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.faults.nemesis import NemesisSettings
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.real_swarm import OnRealSwarm, recording
from swarmlab.scenarios.soak_client import SCENARIO, SoakClient
from swarmlab.scenarios.soak_nemesis import Nemesis
from swarmlab.swarm.deploy import Swarm, deploy
from swarmlab.swarm.leaks import Inventory, Stocktaker
from swarmlab.swarm.spec import SwarmSpec, validate
from swarmlab.types import Span
from swarmlab.workload.requests import Bounds

TELL_S = 20.0
LEAVE_S, POLL_S = 10.0, 0.2


@dataclass(frozen=True, kw_only=True)
class Soak(OnRealSwarm):
    """One run of the experiment.

    :param servers: name and blocks of each
    :param clients: per arm, each a process of its own; all arms at the same time
    :param duration_s: how long sessions are begun
    :param deadline_s: for one session
    :param tolerance: largest difference of hidden states of size 1
    """

    servers: Mapping[str, Span]
    throughput_tps: float
    clients: int
    nemesis: NemesisSettings
    bounds: Bounds
    duration_s: float
    deadline_s: float
    tolerance: float

    @property
    def parts(self) -> list[str]:
        return [SCENARIO]

    @property
    def n_units(self) -> int:
        return self.clients * len(self.arms)

    def describe(self) -> str:
        nemesis = self.nemesis
        return f"""\
Failover soak on a real swarm of {self.checkpoint.model_id}, {self.checkpoint.n_blocks} blocks:
  {len(self.servers)} servers; {self.clients} clients for each of {", ".join(self.arms)}
  {nemesis.failures_per_minute:g} failures and {nemesis.slowdowns_per_minute:g} slowdowns a minute, for \
{self.duration_s / 60:g} minutes
  about {self.duration_s / 60 + 1:.0f} minutes in all"""

    def check(self) -> None:
        """
        :raises BadInput: before anything is started
        """
        validate(self._spec)
        self.require_cache(self.n_units * self.bounds.most_cache_tokens, f"for {self.n_units} clients")
        longest = self.bounds.prompt_tokens[1] + self.bounds.new_tokens[1]
        if longest > self.checkpoint.max_tokens:
            allowed = f"prompt and new tokens within the {self.checkpoint.max_tokens} of the model"
            raise BadInput("soak.new_tokens_max", longest, allowed)

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Run everything and record it; judging comes later, from the run folder.

        :raises SwarmFailed: if servers do not start or come back
        """
        ready = threading.Event()

        def show(name: str, state: str, detail: str) -> None:
            if not ready.is_set():  # there are too many in the soak
                progress.on_state(name, state, detail)

        with deploy(self._spec, run_dir.path, on_state=recording(run_dir, show)) as swarm:
            ready.set()
            stock = Stocktaker(swarm.temp_dir)
            before = self._count("start", run_dir, stock)
            self._soak(swarm, run_dir, progress, stock)
            self._count("end", run_dir, stock, no_more_than=before)
        self._count("after", run_dir, stock)

    def _soak(self, swarm: Swarm, run_dir: RunDir, progress: Progress, stock: Stocktaker) -> None:
        until_s = time.monotonic() + self.duration_s
        write = partial(run_dir.history.write, "faults", "", scenario=SCENARIO)

        def on_end(client: SoakClient) -> None:
            outcome = f"{client.tokens_wrong} wrong" if client.tokens_wrong else "identical"
            progress.end(SCENARIO, client.name, outcome, f"{client.sessions} sessions")

        clients = [
            SoakClient(
                swarm=swarm,
                arm=arm,
                name=f"{arm}-{number}",
                number=number,
                history=run_dir.history,
                args={
                    **self.client_args(arm),
                    "initial_peers": swarm.initial_peers,
                    "tolerance": self.tolerance,
                    "states_dir": str((run_dir.path / "states").resolve()),
                },
                bounds=self.bounds,
                seed=self.seed,
                until_s=until_s,
                deadline_s=self.deadline_s,
                on_end=on_end,
            )
            for arm in self.arms
            for number in range(self.clients)
        ]
        nemesis = Nemesis(
            swarm,
            self.nemesis,
            self.seed,
            lambda row: write(**row),
            lambda: {peer for client in clients for peer in client.peers},
        )
        done = False
        try:
            threads = [client.start() for client in clients]
            nemesis.start()
            self._watch(until_s, clients, nemesis, progress, stock)
            nemesis.end(heal=True)
            for thread in threads:
                thread.join()
            if failures := [client.failure for client in clients if client.failure]:
                raise SwarmFailed("; ".join(failures))
            swarm.wait_ready()
            done = True
        finally:
            if not done:
                nemesis.end(heal=False)
                for client in clients:
                    client.leave()

    @staticmethod
    def _watch(
        until_s: float, clients: Sequence[SoakClient], nemesis: Nemesis, progress: Progress, stock: Stocktaker
    ) -> None:
        """Tell now and then how it goes, until the time is over or the swarm is broken."""
        while (left_s := until_s - time.monotonic()) > 0 and not nemesis.broken:
            sessions = sum(client.sessions for client in clients)
            wrong = sum(client.tokens_wrong for client in clients)
            told = (
                f"{sessions} sessions, {nemesis.failures} failures, {wrong} tokens wrong, {left_s:.0f} s left"
            )
            progress.on_state(SCENARIO, "running", told)
            stock.take()  # what a server bound elsewhere is known as its only while it lives
            time.sleep(min(TELL_S, left_s))

    @property
    def _spec(self) -> SwarmSpec:
        return self.with_servers(self.servers, self.throughput_tps)

    @staticmethod
    def _count(
        moment: str, run_dir: RunDir, stock: Stocktaker, no_more_than: Inventory | None = None
    ) -> Inventory:
        """Record what the swarm has now; helpers of processes that just ended are given a moment to follow."""
        inventory, until_s = stock.take(), time.monotonic() + LEAVE_S
        while no_more_than and inventory.exceeds(no_more_than) and time.monotonic() < until_s:
            time.sleep(POLL_S)
            inventory = stock.take()
        run_dir.history.write("leaks", "", scenario=SCENARIO, moment=moment, **asdict(inventory))
        return inventory
