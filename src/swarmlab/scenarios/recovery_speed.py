"""+exp=recovery_speed: how long a recovery takes, again and again, beside the floor of the very same recovery.

Three spans, each held by two servers. In every session the servers of one span, or of the first and the last, die when
a given number of positions is cached; what takes over is then asked by petals' own code to do the same without a
failure. The swarm is whole, and every server has served something, before the next session begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarmlab.analysis.recovery_speed_grid import Cell
from swarmlab.bridge.models import prompts
from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.real_swarm import OnRealSwarm, recording
from swarmlab.scenarios.recovery_speed_arm import SpeedArm
from swarmlab.swarm.deploy import deploy
from swarmlab.swarm.spec import SwarmSpec, validate
from swarmlab.types import Span

MARGIN_TOKENS = 64  # beyond the history, of a session
SESSION_S = 5.0  # with the tiny model, most of it for servers that start again


@dataclass(frozen=True, kw_only=True)
class RecoverySpeed(OnRealSwarm):
    """One run of the experiment.

    :param cells: of each arm
    :param servers: name and blocks of each
    :param repeats: failures per cell and arm
    :param deadline_s: for one session
    """

    cells: Mapping[str, Sequence[Cell]]
    repeats: int
    servers: dict[str, Span]
    throughput_tps: float
    deadline_s: float
    tolerance: float
    floor_repeats: int

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(cell.name for cells in self.cells.values() for cell in cells))

    @property
    def n_units(self) -> int:
        return sum(map(len, self.cells.values()))

    def describe(self) -> str:
        sessions = self.n_units * self.repeats
        return f"""\
Recovery speed on a real swarm of {self.checkpoint.model_id}, {self.checkpoint.n_blocks} blocks:
  cells {", ".join(self.parts)}
  arms {", ".join(f"{arm} ({len(cells)} cells)" for arm, cells in self.cells.items())}, {self.repeats} failures each
  about {sessions * SESSION_S / 60 + 0.5:.0f} minutes for a tiny model on two cores"""

    def check(self) -> None:
        """
        :raises BadInput: before anything is started
        """
        validate(self._spec)
        longest = max(cell.history for cells in self.cells.values() for cell in cells) + MARGIN_TOKENS
        if longest > self.checkpoint.max_tokens:
            allowed = f"{MARGIN_TOKENS} less than the {self.checkpoint.max_tokens} positions of the model"
            raise BadInput("speed.histories", longest - MARGIN_TOKENS, allowed)
        prompts(self.checkpoint, 1, longest, self.seed)
        if self.floor_repeats < 1:
            raise BadInput("floor_repeats", self.floor_repeats, "at least 1: recoveries are compared with it")
        # one span of the session, the floor, and a standby may be at the same server
        self.require_cache(3 * longest, "(three sessions at once)")

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Run everything and record it; judging comes later, from the run folder.

        :raises SwarmFailed: if servers do not start or come back
        """

        def show(name: str, state: str, detail: str) -> None:
            if state == "failed":
                progress.on_state(name, state, detail)

        with deploy(self._spec, run_dir.path, on_state=recording(run_dir, show)) as swarm:
            for arm in self.arms:
                SpeedArm(
                    swarm=swarm,
                    arm=arm,
                    cells=self.cells[arm],
                    repeats=self.repeats,
                    history=run_dir.history,
                    args={
                        **self.client_args(arm),
                        "initial_peers": swarm.initial_peers,
                        "floor_repeats": self.floor_repeats,
                        "tolerance": self.tolerance,
                        "seed": self.seed,
                    },
                    deadline_s=self.deadline_s,
                    progress=progress,
                ).run()

    @property
    def _spec(self) -> SwarmSpec:
        return self.with_servers(self.servers, self.throughput_tps)
