"""+exp=failover: a server dies in mid-generation, and several clients meet that on the same real swarm.

For every scenario: a failure-free run by unmodified petals and one by plain transformers on this machine are the
references; then each arm runs the same prompts, and at the same token the server that *it* uses for the chosen span
is killed. The swarm is whole again before the next arm begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from swarmlab.bridge.models import prompts
from swarmlab.bridge.petals_argv import check_server_argv
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import failover_plan
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.failover_arm import ArmRun
from swarmlab.scenarios.failover_files import Scenario
from swarmlab.scenarios.real_swarm import OnRealSwarm, recording
from swarmlab.swarm.deploy import Swarm, deploy
from swarmlab.swarm.spec import ServerSpec, SwarmSpec, validate

REFERENCE, PLAIN = "reference", "plain"
# From here on a token of plain transformers takes seconds on a CPU: 30 for 16 blocks of the 65B in nf4 on one core.
LARGE_HIDDEN = 2048


@dataclass(frozen=True, kw_only=True)
class Failover(OnRealSwarm):
    """One run of the experiment; servers are put in per topology.

    :param deadline_s: for one arm in one scenario
    """

    scenarios: Sequence[Scenario]
    throughput_tps: float
    deadline_s: float
    floor_repeats: int

    @property
    def parts(self) -> list[str]:
        return [scenario.name for scenario in self.scenarios]

    @property
    def clients(self) -> tuple[str, ...]:
        """Who runs each scenario, in this order: two references, then the arms."""
        return (REFERENCE, PLAIN, *self.arms)

    @property
    def n_units(self) -> int:
        return len(self.scenarios) * len(self.clients)

    def describe(self) -> str:
        return failover_plan.describe(
            model=f"{self.checkpoint.model_id}, {self.checkpoint.n_blocks} blocks",
            scenarios=self.parts,
            topologies=list(dict.fromkeys(scenario.topology for scenario in self.scenarios)),
            clients=self.clients,
            deadline_s=self.deadline_s,
        )

    def check(self) -> None:
        """
        :raises BadInput: before anything is started, if a topology or a workload cannot work
        """
        for scenario in self.scenarios:
            validate(self._spec(scenario))
            for name, argv in scenario.argv.items():
                field, here = (
                    f"topologies.{scenario.topology}.{name}.argv",
                    self.swarm.cluster.kind == "local",
                )
                check_server_argv(argv, field, here=here)
            work = scenario.workload
            # the floor is measured with a second session while the first is still open
            needed = 2 * work.batch * (work.prompt_tokens + work.new_tokens)
            self.require_cache(needed, f"for {scenario.name} (two sessions at once)")
            prompts(self.checkpoint, work.batch, work.prompt_tokens + work.new_tokens, self.seed)

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Run everything and record it; judging comes later, from the run folder.

        :raises SwarmFailed: if servers do not start or come back
        """
        for _, group in groupby(self.scenarios, key=lambda scenario: scenario.topology):
            scenarios = list(group)
            note = recording(run_dir, progress.on_state)
            with deploy(self._spec(scenarios[0]), run_dir.path, on_state=note) as swarm:
                for scenario in scenarios:
                    for arm in self.clients:
                        progress.begin(scenario.name, arm)
                        outcome, detail = self._run_arm(swarm, scenario, arm, run_dir)
                        progress.end(scenario.name, arm, outcome, detail)

    def _run_arm(self, swarm: Swarm, scenario: Scenario, arm: str, run_dir: RunDir) -> tuple[str, str]:
        faults = () if arm in (REFERENCE, PLAIN) else scenario.faults
        return ArmRun(
            swarm=swarm,
            scenario=replace(scenario, faults=faults),
            arm=arm,
            history=run_dir.history,
            args={
                **self.client_args(arm),
                **self._args_of(scenario, run_dir.states_path(scenario.name, arm)),
                "initial_peers": swarm.initial_peers,
                **(self._followed(scenario, run_dir) if arm == PLAIN else {}),
            },
            deadline_s=self.deadline_s,
        ).run()

    def _args_of(self, scenario: Scenario, states_path: Path) -> dict[str, Any]:
        work = scenario.workload
        return {
            "prompt_ids": prompts(self.checkpoint, work.batch, work.prompt_tokens, self.seed).tolist(),
            "max_length": work.max_length,
            "work": asdict(work),
            "client": {**self.client, **scenario.client},
            "states_path": str(states_path.resolve()),
            "floor_repeats": self.floor_repeats,
        }

    def _followed(self, scenario: Scenario, run_dir: RunDir) -> dict[str, Any]:
        """For a large model: whose text plain transformers follow instead of generating one, and on what."""
        if self.checkpoint.hidden_size < LARGE_HIDDEN:
            return {}
        given_path = run_dir.states_path(scenario.name, REFERENCE).resolve()
        return {"given_path": str(given_path), "device": self.swarm.device}

    def _spec(self, scenario: Scenario) -> SwarmSpec:
        servers = tuple(
            ServerSpec(
                name,
                span,
                throughput_tps=self.throughput_tps,
                port=scenario.ports.get(name),
                argv=scenario.argv.get(name, ()),
            )
            for name, span in scenario.servers.items()
        )
        return replace(self.swarm, servers=servers)
