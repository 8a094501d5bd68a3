"""A handmade record of +exp=failure_rates with known answers, and the ways in which it can go bad."""

from __future__ import annotations

from typing import Any

from swarmlab.analysis.failure_rates import Record
from swarmlab.analysis.failure_rates_grid import Cell

LENGTH, STEP_S, FAILURE_S = 100, 0.02, 0.3
FREE, LOSSY = Cell(LENGTH, 0.0), Cell(LENGTH, 0.01)
INFO = {
    "id": "20261130T000000Z-abcdef", "seed": 7, "world": "real", "device": "cpu", "model": {"id": "tiny_llama"},
    "host": {"cores": 2, "cpu": "a CPU"}, "status": "complete", "scenarios": [FREE.name, LOSSY.name],
    "arms": ["restart", "cacheless", "swarmlab", "petals"],
}  # fmt: skip
EXPECTED: dict[str, Any] = {
    "cells": {
        LOSSY.name: {
            "restart": {"outcome": "unfinished"},
            "swarmlab": {"outcome": "done", "ratio_to_failure_free": {"min": 0.5}},
        }
    },
    "arms": {"swarmlab": {"cost_error_max": {"max": 0.5}}},
}


class Rows:
    """Builds the rows of a run."""

    def __init__(self) -> None:
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.t = 0.0

    def add(self, kind: str, arm: str, cell: Cell, **fields: Any) -> None:
        self.t += 0.001
        row = {"t": self.t, "arm": arm, "scenario": cell.name, "repeat": 0, **fields}
        self.history.setdefault(kind, []).append(row)

    def generation(
        self, arm: str, cell: Cell, *, outcome: str = "done", how: str = "measured", elapsed_s: float | None = None,
        tokens: int = LENGTH, steps_run: int | None = None, wrong: tuple[int, ...] = (), session: int = 0,
        error: str | None = None,
    ) -> Rows:  # fmt: skip
        for token in range(tokens if outcome != "simulated" else 0):
            ids = [token + (1000 if token in wrong else 0)]
            self.add(
                "steps",
                arm,
                cell,
                session=session,
                token=token,
                phase="decode",
                seconds=STEP_S,
                token_ids=ids,
            )
        self.add("outcomes", arm, cell, outcome=outcome, how=how, length=cell.length, p=cell.p, tokens=tokens,
                 tokens_expected=cell.length, elapsed_s=elapsed_s, steps_run=steps_run or tokens,
                 error=error)  # fmt: skip
        return self

    def failures(
        self, arm: str, cell: Cell, n: int, *, seconds: float = FAILURE_S, tokens: int = 50, ok: bool = True,
        confirmed: int | None = None, met: int | None = None,
    ) -> Rows:  # fmt: skip
        """
        :param confirmed: how many of them; None for all
        :param met: how many the client tells of; None for all
        """
        for index in range(n):
            self._fault(arm, cell, "inject", True)
            if index < (n if confirmed is None else confirmed):
                self._fault(arm, cell, "confirm", ok)
            if index < (n if met is None else met):
                self.add("failovers", arm, cell, session=0, token=tokens, cause="reset", total_s=seconds,
                         tokens_replayed=tokens)  # fmt: skip
        return self

    def _fault(self, arm: str, cell: Cell, stage: str, ok: bool) -> None:
        self.add("faults", arm, cell, fault="reset", target="stage1", stage=stage, ok=ok, detail="")

    @property
    def record(self) -> Record:
        return Record(self.history)


def controls() -> Rows:
    """The failure-free cells: 2 s with caches, 10 s without."""
    rows = Rows()
    rows.generation("plain", FREE)
    for arm, elapsed_s in (("restart", 2.0), ("cacheless", 10.0), ("swarmlab", 2.0)):
        rows.generation(arm, FREE, elapsed_s=elapsed_s)
    return rows


def good_run() -> Rows:
    """A run that shows everything that is asked of it: swarmlab takes 2 s and five failures of 0.3 s."""
    rows = controls()
    rows.generation("restart", LOSSY, outcome="unfinished", how="bounded", tokens=30)
    rows.failures("restart", LOSSY, 7, seconds=0.01)
    rows.generation("cacheless", LOSSY, outcome="simulated", how="simulated", tokens=0)
    rows.generation("swarmlab", LOSSY, elapsed_s=3.5).failures("swarmlab", LOSSY, 5)
    rows.generation(
        "petals", LOSSY, outcome="exception", how="bounded", tokens=12, error="AssertionError: Broken"
    )
    rows.failures("petals", LOSSY, 1, met=0)
    return rows
