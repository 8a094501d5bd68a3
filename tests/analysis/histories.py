"""Handmade failover histories with known answers: a good one, and the ways in which it can go bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from swarmlab.analysis.evidence import Evidence

if TYPE_CHECKING:
    from pathlib import Path

TOKENS, HIDDEN, AT_TOKEN = 32, 4, 8
SPAN = {"start": 8, "end": 16, "peer": "spare"}


class History:
    """Builds rows and arrays for scenarios of ``TOKENS`` tokens with one kill before token ``AT_TOKEN``.

    Steps take 0.1 s; the recovering step of an arm takes what :meth:`arm` is told.
    """

    def __init__(self, batch: int = 1) -> None:
        self.batch = batch
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.arrays: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        rng = np.random.default_rng(7)
        self.token_ids = np.stack([rng.permutation(1000)[:TOKENS] for _ in range(batch)])
        self.hidden = rng.normal(size=(batch, TOKENS, HIDDEN)).astype(np.float32)

    def add(self, kind: str, arm: str, scenario: str, t: float, **fields: Any) -> dict[str, Any]:
        row = {"t": t, "arm": arm, "scenario": scenario, **fields}
        self.rows.setdefault(kind, []).append(row)
        return row

    def controls(self, scenario: str = "kill_last") -> History:
        """The failure-free run, plain transformers, and the floor (0.1 s)."""
        for arm in ("reference", "plain"):
            self._steps(arm, scenario, TOKENS, 0.1)
            self._save(arm, scenario, TOKENS, 0.0, ())
            self.outcome(arm, scenario, "identical", TOKENS)
        for repeat in range(3):
            self.add("floors", "reference", scenario, 50.0, repeat=repeat, tokens=AT_TOKEN, connect_s=0.02,
                     prefill_s=0.08 + 0.01 * (repeat - 1), spans=[SPAN])  # fmt: skip
        return self

    def arm(
        self, arm: str, scenario: str = "kill_last", *, outcome: str = "identical", tokens: int = TOKENS,
        wrong: tuple[int, ...] = (), noise: float = 1e-5, recovery_s: float = 0.4, failover_row: bool = False,
        at_token: int = AT_TOKEN, error: str | None = None, broken: bool = False, elapsed_s: float = 10.0,
    ) -> History:  # fmt: skip
        """One compared arm.

        :param outcome: what it recorded of itself
        :param tokens: how many it produced
        :param wrong: indices of tokens that differ from the failure-free run's
        :param noise: largest difference of its hidden states
        """
        fault_s = 100.0 + 0.1 * at_token
        self.fault(arm, scenario, fault_s, at_token)
        self._steps(arm, scenario, tokens, recovery_s, at_token, wrong)
        self._save(arm, scenario, tokens, noise, wrong)
        if failover_row:
            self.add("failovers", arm, scenario, fault_s + recovery_s, session="s", token=at_token, cause="reset",
                     detect_s=0.05, reroute_s=0.01, connect_s=0.02, replay_s=0.2, total_s=0.28, requests=1,
                     tokens_replayed=at_token, failed=[{**SPAN, "peer": "dead"}], spans=[SPAN],
                     peers_tried=["spare"])  # fmt: skip
        self.outcome(arm, scenario, outcome, tokens, error=error, broken=broken, t=fault_s + elapsed_s)
        return self

    def fault(self, arm: str, scenario: str, t: float, at_token: int) -> None:
        for stage, offset in (("setup", -0.2), ("inject", -0.1), ("confirm", 0.0), ("cleanup", 60.0)):
            self.add("faults", arm, scenario, t + offset, fault="kill", target="c", peer="dead", span_start=8,
                     span_end=16, stage=stage, at_token=at_token, ok=True, detail="")  # fmt: skip

    def outcome(
        self, arm: str, scenario: str, outcome: str, tokens: int, *, error: str | None = None, broken: bool = False,
        t: float = 200.0,
    ) -> None:  # fmt: skip
        self.add("outcomes", arm, scenario, t, outcome=outcome, tokens=tokens, tokens_expected=TOKENS,
                 tokens_identical_ratio=None, max_abs_diff=None, max_abs_diff_plain=None, error=error, elapsed_s=10.0,
                 text=None, seen_broken_input_cache=broken)  # fmt: skip

    def evidence(self, tolerance: float = 3e-4) -> Evidence:
        return Evidence(self.rows, lambda scenario, arm: self.arrays.get((scenario, arm)), tolerance)

    def save(self, folder: Path) -> None:
        """Write what a run would have left: the rows in order of time, and the arrays."""
        from swarmlab.record.writer import HistoryWriter

        with HistoryWriter(folder / "history", start_s=0.0) as writer:
            for kind, rows in self.rows.items():
                for row in sorted(rows, key=lambda row: row["t"]):
                    fields = {name: value for name, value in row.items() if name not in ("t", "arm")}
                    writer.write(kind, row["arm"], at_s=row["t"], **fields)
        for (scenario, arm), arrays in self.arrays.items():
            np.savez(folder / "states" / f"{scenario}.{arm}.npz", allow_pickle=False, **arrays)

    def _steps(
        self,
        arm: str,
        scenario: str,
        tokens: int,
        recovery_s: float,
        at_token: int = -1,
        wrong: tuple[int, ...] = (),
    ) -> None:
        t = 100.0
        for token in range(tokens):
            seconds = recovery_s if token == at_token else 0.1
            t += seconds
            ids = [int(row[token]) + (2000 if token in wrong else 0) for row in self.token_ids]
            self.add("steps", arm, scenario, t, session="s", token=token, phase="decode" if token else "prefill",
                     seconds=seconds, retries=int(token == at_token), token_ids=ids)  # fmt: skip

    def _save(self, arm: str, scenario: str, tokens: int, noise: float, wrong: tuple[int, ...]) -> None:
        ids, hidden = self.token_ids[:, :tokens].copy(), self.hidden[:, :tokens].copy()
        ids[:, [token for token in wrong if token < tokens]] += 2000
        hidden[:1, :1, :1] += noise
        self.arrays[scenario, arm] = {"token_ids": ids, "hidden": hidden}


# What each arm shows in the default scenarios, close to what was measured on a small CPU swarm.
BROKEN = "AssertionError: Broken input cache: span=8:16"


DEFAULT_SCENARIOS = ["kill_last", "kill_first", "kill_middle", "split_replacement", "batch_of_3", "prefill"]


def default_run() -> History:
    """A run that shows everything the experiment claims."""
    history = History()
    for scenario in ("kill_last", "kill_first", "kill_middle", "split_replacement", "batch_of_3"):
        history.controls(scenario)
        history.arm(
            "petals",
            scenario,
            outcome="exception",
            tokens=AT_TOKEN,
            error=BROKEN,
            broken=True,
            elapsed_s=24.0,
        )
        if scenario in ("split_replacement", "batch_of_3"):
            wrong = tuple(range(AT_TOKEN + 1, TOKENS, 2))
            history.arm("issue_patch", scenario, outcome="wrong", wrong=wrong, noise=15.0, recovery_s=5.0)
        else:
            history.arm("issue_patch", scenario, recovery_s=5.0)
        history.arm("swarmlab", scenario, failover_row=True)
    history.controls("prefill")
    history.arm("petals", "prefill", at_token=0, recovery_s=8.0)
    history.arm(
        "issue_patch", "prefill", at_token=0, outcome="wrong", wrong=(3, 4), noise=15.0, recovery_s=8.0
    )
    history.arm("swarmlab", "prefill", at_token=0, recovery_s=0.5, failover_row=True)
    return history
