"""+exp=failure_rates: the paper's Table 1 on a real swarm, a sequence of four stages whose messages get lost.

At each length the failure-free cells come first. What they cost decides, through the closed form, which of the other
cells are run; the others are computed by the judge. One stage is one server, so whoever loses a session has to be
asked again: nobody else holds its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swarmlab.analysis.failure_rates_grid import Cell, How, cells, decide
from swarmlab.analysis.failure_rates_model import N_STAGES, Costs, expected_s, fit_failure_costs
from swarmlab.bridge.models import prompts
from swarmlab.faults.session_reset import ResetControl
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.failure_rates_cell import CellRun, Result
from swarmlab.scenarios.real_swarm import OnRealSwarm, recording
from swarmlab.swarm.deploy import Swarm, deploy
from swarmlab.swarm.spec import ServerSpec, SwarmSpec, validate
from swarmlab.types import Span

PLAIN = "plain"
GUESS_S = 60.0  # of a failure-free generation, before one was run
CLIENT_S = 3.0  # to start one


@dataclass(frozen=True, kw_only=True)
class FailureRates(OnRealSwarm):
    """One run of the experiment.

    :param rates: probabilities that one send of activations fails; 0 is always among them
    :param repeats: generations per cell and arm where p > 0
    :param budget_s: longest expected generation that is run
    :param bounded_s: how long one is watched that will not finish
    """

    lengths: Sequence[int]
    rates: Sequence[float]
    repeats: int
    budget_s: float
    bounded_s: float
    throughput_tps: float

    _step_s: dict[tuple[str, int], float] = field(default_factory=dict, init=False)
    _failures: dict[str, list[tuple[float, float]]] = field(default_factory=dict, init=False)

    @property
    def cells(self) -> list[Cell]:
        return cells(self.lengths, self.rates)

    @property
    def parts(self) -> list[str]:
        return [cell.name for cell in self.cells]

    @property
    def n_units(self) -> int:
        per_cell = (len(self._arms_in(cell)) * self._n_repeats(cell) for cell in self.cells)
        return len(self.lengths) + sum(per_cell)

    def describe(self) -> str:
        lengths = ", ".join(map(str, self.lengths))
        rates = ", ".join(f"{p:g}" for p in sorted({0.0, *self.rates}))
        return f"""\
The paper's table of unreliable servers on a real swarm of {self.checkpoint.model_id}:
  {N_STAGES} stages, one server each; {lengths} tokens; failure probability per send {rates}
  arms {", ".join(self.arms)}; {self.repeats} generation(s) per cell
  a cell that is expected to take more than {self.budget_s:g} s is computed, not run"""

    def check(self) -> None:
        """
        :raises BadInput: before anything is started
        """
        validate(self._spec({}))
        longest = max(self.lengths)
        prompts(self.checkpoint, 1, longest, self.seed)
        # a replacement's session may begin before the one it replaces is quite gone
        self.require_cache(2 * longest, "(two sessions at once)")

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Run every cell that can be run, failure-free ones first.

        :raises SwarmFailed: if servers do not start
        """
        folder = run_dir.path.resolve() / "resets"
        folder.mkdir()
        controls = {name: ResetControl(folder, name) for name in stages(self.checkpoint.n_blocks)}
        note = recording(run_dir, progress.on_state)
        with deploy(self._spec(controls), run_dir.path, on_state=note) as swarm:
            for cell in self.cells:
                if cell.p == 0:
                    self._one(swarm, controls, cell, PLAIN, 0, run_dir, progress)
                for arm in self._arms_in(cell):
                    for repeat in range(self._n_repeats(cell)):
                        self._one(swarm, controls, cell, arm, repeat, run_dir, progress)

    def _one(
        self,
        swarm: Swarm,
        controls: dict[str, ResetControl],
        cell: Cell,
        arm: str,
        repeat: int,
        run_dir: RunDir,
        progress: Progress,
    ) -> None:
        progress.begin(cell.name, arm)
        predicted_s = self._expected_s(arm, cell)
        how = decide(arm, cell, predicted_s, self.budget_s)
        run = CellRun(
            swarm=swarm,
            controls=controls,
            cell=cell,
            arm=arm,
            repeat=repeat,
            how=how,
            predicted_s=predicted_s,
            history=run_dir.history,
            args={
                **self.client_args(arm),
                **self._args_of(cell, run_dir.states_path(cell.name, arm)),
                "initial_peers": swarm.initial_peers,
            },
            bound_s=self._bound_s(arm, cell, how, predicted_s),
            seed=self.seed + repeat,
        )
        result = run.skip() if how is How.SIMULATED else run.run()
        self._learn(arm, cell, result)
        progress.end(cell.name, arm, result.outcome, result.detail)

    def _bound_s(self, arm: str, cell: Cell, how: How, predicted_s: float | None) -> float:
        if arm == "petals":  # ends by itself at the first failure, or at its end if it meets none
            return 4 * self.budget_s
        if how is How.BOUNDED:
            return self.bounded_s
        if cell.p == 0:
            return 60 * GUESS_S
        # restarts are geometric: of a hundred runs two take more than four times what is expected
        return 4 * (predicted_s or self.budget_s) + GUESS_S

    def _arms_in(self, cell: Cell) -> list[str]:
        # without failures petals is the restart arm: the same server sessions, and nothing to recover from
        return [arm for arm in self.arms if cell.p or arm != "petals"]

    def _n_repeats(self, cell: Cell) -> int:
        return self.repeats if cell.p else 1

    def _learn(self, arm: str, cell: Cell, result: Result) -> None:
        if cell.p == 0 and result.outcome == "done":
            self._step_s[arm, cell.length] = result.elapsed_s / cell.length
        self._failures.setdefault(arm, []).extend(result.failures)

    def _expected_s(self, arm: str, cell: Cell) -> float | None:
        step_s = self._step_s.get((arm, cell.length))
        if step_s is None:
            return None
        failures = self._failures.get(arm, [])
        costs = fit_failure_costs([history for history, _ in failures], [seconds for _, seconds in failures])
        return expected_s(arm, cell.length, cell.p, Costs(step_s, *costs))

    def _args_of(self, cell: Cell, states_path: Path) -> dict[str, Any]:
        prefix = prompts(self.checkpoint, 1, 1, self.seed).tolist()
        return {
            "prefix_ids": prefix,
            "length": cell.length,
            # what the plain client reads
            "prompt_ids": prefix,
            "work": {"new_tokens": cell.length},
            "states_path": str(states_path.resolve()),
        }

    def _spec(self, controls: dict[str, ResetControl]) -> SwarmSpec:
        servers = tuple(
            ServerSpec(
                name,
                span,
                throughput_tps=self.throughput_tps,
                kind="faulty_server:server",
                options=tuple(controls[name].server_options.items()) if name in controls else (),
            )
            for name, span in stages(self.checkpoint.n_blocks).items()
        )
        return replace(self.swarm, servers=servers)


def stages(n_blocks: int) -> dict[str, Span]:
    """The blocks of each stage, as evenly as the paper's 8, 7, 8, 7 of 30."""
    edges = [-(-index * n_blocks // N_STAGES) for index in range(N_STAGES + 1)]
    return {f"stage{index + 1}": Span(edges[index], edges[index + 1]) for index in range(N_STAGES)}
