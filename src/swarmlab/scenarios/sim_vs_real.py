"""+exp=sim_vs_real: what happened to a real swarm happens to a simulated one with the same policies; do they agree?

The simulator gets from the real run when records were lost, servers died and joined, and how long loading a block and
a move take; everything else is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from swarmlab.analysis.rebalance import KINDS, TIMELINE, parts
from swarmlab.analysis.sim_vs_real import REAL, SIMULATED, LoadSeconds, Timeline, load_seconds, timeline
from swarmlab.errors import BadInput
from swarmlab.placement.appendix_d import AppendixD
from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.moves import Price
from swarmlab.placement.petals import Petals
from swarmlab.placement.policy import Policy
from swarmlab.placement.recheck import Recheck
from swarmlab.placement.swarmlab import Swarmlab
from swarmlab.record.load import DamagedRun, Run, load_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios import rebalance_plan as plan
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.rebalance import Rebalance
from swarmlab.sim.population import Ending, Member, Visit
from swarmlab.sim.scripted import Loss, Script, play
from swarmlab.sim.settings import SimSettings
from swarmlab.sim.world import Arm
from swarmlab.swarm.rebalancing import RebalanceSettings
from swarmlab.types import Event

BEFORE_S = 60.0  # simulated seconds for the first servers to come, one after another, and to load
JOIN_EVERY_S = 3.0


@dataclass(frozen=True)
class SimVsReal:
    """One run of the experiment.

    :param real: runs the real swarm; None where ``stored`` has one
    :param stored: folder of a run of +exp=rebalance
    """

    arms: Sequence[str]
    settings: RebalanceSettings
    n_blocks: int
    real: Rebalance | None
    stored: Path | None
    model: Mapping[str, Any]
    seed: int

    world: Literal["real"] = "real"

    @property
    def parts(self) -> list[str]:
        return [REAL, SIMULATED]

    @property
    def n_units(self) -> int:
        return len(self.arms) + (self.real.n_units if self.real else 0)

    def describe(self) -> str:
        simulations = f"{self.settings.simulations} simulations of each arm"
        if self.real is None:
            return f"The real run is {self.stored}; no server is started\n{simulations}"
        return (
            f"Starts a real swarm first, about {self.real.minutes} minute(s); to take a stored run of +exp=rebalance "
            f"instead: rebalance.run_dir=RUN_DIR\n{self.real.describe()}\nThen {simulations}"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """The real swarm first (unless it is stored), then the simulations of it.

        :raises SwarmFailed: if servers do not start where they should
        """
        if self.real is not None:
            self.real.run(run_dir, progress)
        source = load_run(self.stored or run_dir.path)
        history = {kind: source.history(kind) for kind in KINDS}
        if self.stored is not None:
            run_dir.update(compared_with={"id": source.info["id"], "git": source.info.get("git")})
        seconds = load_seconds(history, self.settings.scaled(self.settings.choice_delay_s))
        run_dir.update(load_seconds=seconds.__dict__)
        for arm in self.arms:
            progress.begin(SIMULATED, arm)
            happened, zero_s = timeline(history, arm)
            self._copy(run_dir, history, arm, zero_s)
            for repeat in range(self.settings.simulations):
                self._record(run_dir, self._simulate(arm, happened, seconds, self.seed + repeat), repeat)
            progress.end(SIMULATED, arm, "done", f"{self.settings.simulations} times")

    def _copy(
        self, run_dir: RunDir, history: Mapping[str, list[dict[str, Any]]], arm: str, zero_s: float
    ) -> None:
        """The real run's rows under their world, at seconds since its first scenario began."""
        found = parts(history)
        for scenario in TIMELINE:
            part = found.get((scenario, arm))
            if part is None:
                continue
            for kind, rows in (("balance", part.samples), ("reloads", part.moves)):
                for row in rows:
                    fields = {
                        name: value for name, value in row.items() if name not in ("t", "arm", "scenario")
                    }
                    at_s = run_dir.history.start_s + row["t"] - zero_s
                    run_dir.history.write(kind, arm, at_s=at_s, scenario=REAL, part=scenario, **fields)

    def _simulate(self, arm: str, happened: Timeline, seconds: LoadSeconds, seed: int) -> list[Event]:
        ours = arm == "swarmlab"
        scaled = self.settings.scaled
        settings = SimSettings(
            n_blocks=self.n_blocks,
            duration_s=BEFORE_S + happened.end_s,
            sample_every_s=self.settings.sample_every_s,
            check_period_s=scaled(self.settings.check_period_s),
            mean_choice_delay_s=scaled(self.settings.choice_delay_s),
            update_period_s=scaled(self.settings.update_period_s),
            expiration_s=scaled(self.settings.expiration_s),
            announce_delay_s=seconds.announce_s,
            s_per_block=seconds.s_per_block,
            s_per_move=seconds.s_per_kept_move if ours else seconds.s_per_full_move,
        )
        lost = happened.lost
        most_s = scaled(self.settings.lost_s)
        script = Script(
            loss=None if lost is None else Loss(lost[0], BEFORE_S + lost[1], most_s, seconds.back_s),
            fixed=frozenset(place.name for place in plan.SWARM if not place.free),
            settles_s=BEFORE_S,
        )
        return play(
            settings, _members(self.n_blocks, happened), Arm(arm, self._policy(arm), ours), script, seed
        )

    def _policy(self, arm: str) -> Policy:
        """The arm's policy with its waits in seconds here."""
        scaled, settings = self.settings.scaled, self.settings
        check_s, choice_s = scaled(settings.check_period_s), scaled(settings.choice_delay_s)
        petals = Petals(settings.balance_quality, check_s, choice_s)
        policies: dict[str, Policy] = {
            "petals": petals,
            "recheck": Recheck(petals, time_scale=settings.time_scale),
            "pinned": JoinOnly(),
            "appendix_d": AppendixD(mean_check_period_s=check_s, mean_choice_delay_s=choice_s),
            "swarmlab": Swarmlab(
                price=Price(horizon_s=scaled(settings.horizon_s)),
                grace_s=scaled(settings.grace_s),
                visible_after_s=scaled(settings.visible_s),
                confirm_s=plan.CONFIRM_S,
                watch_s=scaled(plan.WATCH_S),
                no_return_s=scaled(plan.NO_RETURN_S),
                mean_check_period_s=check_s,
                mean_choice_delay_s=choice_s,
            ),
        }
        return policies[arm]

    @staticmethod
    def _record(run_dir: RunDir, events: Sequence[Event], repeat: int) -> None:
        """Samples since the first scenario began, and moves; ``t`` is seconds since then."""
        history = run_dir.history
        for event in events:
            t = event.t_s - BEFORE_S
            if event.kind in ("balance", "reloads") and t >= 0:
                history.write(
                    event.kind,
                    event.arm,
                    at_s=history.start_s + t,
                    scenario=SIMULATED,
                    repeat=repeat,
                    **event.fields,
                )


def _members(n_blocks: int, happened: Timeline) -> tuple[Member, ...]:
    """The servers of the plan, each coming in its turn; killed and joining ones when they really did."""
    members = []
    for number, place in enumerate((*plan.SWARM, plan.WIDE)):
        here = place.scaled(n_blocks)
        start_s = (
            BEFORE_S + happened.joined[here.name] if here.name in happened.joined else number * JOIN_EVERY_S
        )
        if here.name == plan.WIDE.name and here.name not in happened.joined:
            continue
        end_s = BEFORE_S + happened.killed[here.name] if here.name in happened.killed else float("inf")
        visit = Visit(start_s, end_s, Ending.CRASH)
        members.append(Member(here.name, here.span.length, here.tps, (visit,)))
    return tuple(members)


def stored_run(folder: str, arms: Sequence[str]) -> Run:
    """A run of +exp=rebalance that can be compared with.

    :raises BadInput: if it is none, or lacks an arm
    """
    try:
        run = load_run(folder, field="rebalance.run_dir")
        history = {kind: run.history(kind) for kind in KINDS}
    except DamagedRun as error:
        raise BadInput("rebalance.run_dir", folder, f"an undamaged run; {error}") from error
    if not str(run.info["exp"]).startswith("rebalance"):
        allowed = f"the folder of a run of +exp=rebalance; this one is of {run.info['exp']}"
        raise BadInput("rebalance.run_dir", folder, allowed)
    for arm in arms:
        try:
            timeline(history, arm)
        except ValueError as error:
            raise BadInput("rebalance.run_dir", folder, f"a run with a whole timeline of {arm}") from error
    return run
