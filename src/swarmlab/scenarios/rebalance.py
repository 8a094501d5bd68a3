"""+exp=rebalance and +exp=rebalance_under_load: real servers lose records, neighbours and balance, arm after arm.

Each arm has a swarm of its own with the same servers in the same places, to which the same things happen: the records
of a server are lost for a while (the public report's case), two servers die, a wide one joins. Apart from that, one
server of 20 blocks has to move by two while its disk is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.real_swarm import OnRealSwarm
from swarmlab.scenarios.rebalance_arm import ArmRun
from swarmlab.scenarios.rebalance_watch import warm_up
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.swarm.spec import ServerSpec, validate
from swarmlab.types import Span
from swarmlab.workload.requests import Bounds

START_S, SLOW_S = 30.0, 40.0  # of one swarm, and of one slow move beside its blocks
SLOW_ARMS = ("petals", "swarmlab")


@dataclass(frozen=True, kw_only=True)
class Rebalance(OnRealSwarm):
    """One run of the experiment; clients are those of swarmlab in every arm.

    :param deadline_s: for one session
    """

    scenarios: Sequence[str]
    settings: RebalanceSettings
    bounds: Bounds
    deadline_s: float
    tolerance: float

    @property
    def parts(self) -> list[str]:
        return list(self.scenarios)

    @property
    def n_units(self) -> int:
        return len(self._main) * len(self.arms) + len(self._slow_arms)

    @property
    def _main(self) -> list[str]:
        return [name for name in self.scenarios if name != plan.SLOW_DISK]

    @property
    def _slow_arms(self) -> list[str]:
        return [arm for arm in self.arms if arm in SLOW_ARMS and plan.SLOW_DISK in self.scenarios]

    def describe(self) -> str:
        settings = self.settings
        return f"""\
Rebalancing of a real swarm of {self.checkpoint.model_id}, {self.checkpoint.n_blocks} blocks:
  {len(plan.SWARM)} servers and one that joins, {settings.clients} client(s); arms: {", ".join(self.arms)}
  {len(self.scenarios)} scenarios ({", ".join(self.scenarios)})
  1 s stands for {settings.time_scale:g} s of petals' waits, {settings.read_delay_s:g} s to read a block
  about {self.minutes} minute(s) in all"""

    @property
    def minutes(self) -> int:
        """How long it takes, roughly."""
        return max(1, round(self._seconds() / 60))

    def _seconds(self) -> float:
        settings = self.settings
        lasting = {
            plan.RECORDS_LOST: settings.settle_s
            + settings.scaled(settings.expiration_s + settings.lost_s / 2),
            plan.GAP: settings.gap_s,
            plan.WIDE_JOINS: settings.wide_s,
        }
        one_arm = START_S + sum(lasting[name] for name in self._main) if self._main else 0.0
        widest = plan.SLOW_SWARM[-1].scaled(self.checkpoint.n_blocks).span.length
        slow = START_S + SLOW_S + widest * settings.slow_read_delay_s / 2
        return len(self.arms) * one_arm + len(self._slow_arms) * slow

    def check(self) -> None:
        """
        :raises BadInput: before anything is started
        """
        if self.checkpoint.n_blocks % plan.UNITS:
            raise BadInput("model.n_blocks", self.checkpoint.n_blocks, f"a multiple of {plan.UNITS}")
        if not self.n_units:
            raise BadInput("arms", self.arms, f"for {plan.SLOW_DISK}: some of {', '.join(SLOW_ARMS)}")
        clients = self.settings.clients
        self.require_cache(clients * self.bounds.most_cache_tokens, f"for {clients} clients")
        places = [place.scaled(self.checkpoint.n_blocks) for place in (*plan.SWARM, plan.WIDE)]
        # petals places them itself; what counts here is memory, and that they cover the model
        servers = tuple(
            ServerSpec(place.name, Span(*_ends(place)), throughput_tps=place.tps) for place in places
        )
        validate(replace(self.swarm, servers=servers))

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """One swarm after the other, and judging comes later, from the run folder.

        :raises SwarmFailed: if servers do not start where they should
        """
        arm_run = ArmRun(
            swarm=self.swarm,
            settings=self.settings,
            bounds=self.bounds,
            client_args={
                **self.client_args("swarmlab"),
                "tolerance": self.tolerance,
                "states_dir": str((run_dir.path / "states").resolve()),
            },
            deadline_s=self.deadline_s,
            seed=self.seed,
            run_dir=run_dir,
            progress=progress,
        )
        places = [place.scaled(self.checkpoint.n_blocks) for place in (*plan.SWARM, plan.WIDE)]
        warm_up({place.name: place for place in places}, self.checkpoint.n_blocks)
        for arm in self.arms:
            if self._main:
                arm_run.main(arm, self._main)
        for arm in self._slow_arms:
            arm_run.slow_disk(arm)


def _ends(place: plan.Place) -> tuple[int, int]:
    return place.span.start, place.span.end
