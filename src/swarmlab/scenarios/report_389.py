"""+exp=report_389: the swarm of petals' issue 389, as it was seen and as it was, and what every arm does with it.

Each server decides while all others stay. In between lies one read of the DHT that lacks records of one server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from swarmlab.errors import BadInput
from swarmlab.placement.cost import LoadCost
from swarmlab.placement.layout import layout_of
from swarmlab.placement.optimum import best_placement
from swarmlab.placement.policy import Server
from swarmlab.placement.problem import problem_of
from swarmlab.placement.quality import petals_quality
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.placement_arms import arm_of, record
from swarmlab.settings import ROOT, RunSettings
from swarmlab.sim.replay import Replayed, replay
from swarmlab.types import Event, ServerRecord, Span, SwarmView

REPORT = ROOT / "experiments" / "report_389" / "report.yaml"
VIEW = "view"
# What reads of the DHT bring back, in seconds: everything, or a part of S4's records from the first to the last.
CHECK_S, BACK_S, END_S = 60.0, 65.0, 660.0
MISSING = {"whole": (END_S, END_S), "records_back": (CHECK_S, BACK_S), "still_missing": (CHECK_S, np.inf)}
SOLVER_S = 30.0


@dataclass(frozen=True)
class Report:
    """The report's facts, as ``report.yaml`` has them."""

    facts: dict[str, Any]

    @classmethod
    def read(cls, path: Path = REPORT) -> Report:
        """
        :raises BadInput: if the file cannot be read
        """
        try:
            return cls(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, yaml.YAMLError) as error:
            raise BadInput("experiments/report_389/report.yaml", str(path), "a readable YAML file") from error

    @property
    def n_blocks(self) -> int:
        return self.facts["blocks"]

    def spans(self, *, as_seen: bool) -> dict[str, Span]:
        """Who serves what; a reader takes the blocks it finds of a server for one span, first to last."""
        spans = {name: Span(one["start"], one["end"]) for name, one in self.facts["servers"].items()}
        if as_seen:
            spans |= {name: Span(found[0], found[-1] + 1) for name, found in self.facts["found"].items()}
        return spans

    def view(self, at_s: float, *, as_seen: bool) -> SwarmView:
        records = [
            ServerRecord(name, span, self.facts["servers"][name]["tps"])
            for name, span in self.spans(as_seen=as_seen).items()
        ]
        return SwarmView(self.n_blocks, tuple(records), seen_at_s=at_s)

    def seen_tps(self) -> np.ndarray:
        """Throughput of each block from the records that were found, holes included."""
        values = layout_of(self.view(0.0, as_seen=False)).throughput_tps.copy()
        for name, found in self.facts["found"].items():
            for block in set(self.spans(as_seen=False)[name]) - set(found):
                values[block] -= self.facts["servers"][name]["tps"]
        return values

    def reported_tps(self) -> list[float]:
        """The published vector."""
        return [tps for count, tps in self.facts["reported_tps"] for _ in range(count)]

    @cached_property
    def s_per_block(self) -> float:
        """Seconds to read and quantize a block and to load its adapter: the median of those after the first."""
        return float(np.median(np.diff(self.facts["loading"]["adapter_loaded_s"])))

    @property
    def offline_s(self) -> float:
        """Seconds between the decision to reload and the new choice of blocks."""
        return self.facts["loading"]["unload_to_joining_s"]


@dataclass(frozen=True)
class Report389:
    """One run of the experiment."""

    report: Report
    scenarios: Sequence[str]
    arms: Sequence[str]
    seed: int

    world: Literal["simulated"] = "simulated"

    @property
    def model(self) -> dict[str, Any]:
        return {"id": f"Llama-65B in a public report, {self.report.n_blocks} blocks", "hash": None}

    @property
    def parts(self) -> list[str]:
        return list(self.scenarios)

    @property
    def n_units(self) -> int:
        return len(self.scenarios) * len(self.arms) + 1

    def describe(self) -> str:
        return (
            f"petals' issue 389 replayed: {len(self.report.facts['servers'])} servers, {self.report.n_blocks} blocks, "
            f"{self.report.s_per_block:.1f} s per block\n"
            f"{len(self.scenarios)} scenarios ({', '.join(self.scenarios)}), arms: {', '.join(self.arms)}\n"
            "a few seconds"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Let every server decide with every arm, and record it."""
        record(run_dir, self._view())
        progress.end(VIEW, "optimal", "done", "the view as seen and as it was")
        for scenario in self.scenarios:
            for arm in self.arms:
                progress.begin(scenario, arm)
                events = [
                    event
                    for name in self.report.spans(as_seen=False)
                    for event in self._decide(scenario, arm, name)
                ]
                record(run_dir, events, scenario=scenario)
                moves = sum(event.kind == "reloads" for event in events)
                progress.end(
                    scenario, arm, "done", f"{moves} of {len(self.report.spans(as_seen=False))} servers move"
                )

    def _view(self) -> list[Event]:
        was = layout_of(self.report.view(0.0, as_seen=False)).throughput_tps
        vectors = zip(self.report.seen_tps(), was, self.report.reported_tps(), strict=True)
        events = [
            Event(
                CHECK_S,
                "blocks",
                VIEW,
                {"block": block, "seen_tps": seen, "was_tps": true, "reported_tps": told},
            )
            for block, (seen, true, told) in enumerate(vectors)
        ]
        best = best_placement(
            problem_of(self.report.view(0.0, as_seen=False)), time_limit_s=SOLVER_S, seed=self.seed
        )
        # the reporter is the first server that the report lists
        reporter = next(iter(self.report.spans(as_seen=False)))
        rng = np.random.default_rng(self.seed)
        quality = petals_quality(self.report.view(CHECK_S, as_seen=True), reporter, rng)
        fields = {
            "swarm_tps": float(was.min()),
            "seen_swarm_tps": float(self.report.seen_tps().min()),
            "optimal_tps": best.bound_tps,
            "bound_gap": best.gap,
            "quality_petals": None if quality is None else quality.share,
            "quality_reported": self.report.facts["quality_percent"] / 100,
        }
        return [*events, Event(CHECK_S, "balance", VIEW, fields)]

    def _decide(self, scenario: str, arm_name: str, name: str) -> list[Event]:
        arm, span = arm_of(arm_name), self.report.spans(as_seen=False)[name]
        load = LoadCost(self.report.s_per_block, keeps_overlap=arm.keeps_overlap)
        server = Server(name, span.length, self.report.facts["servers"][name]["tps"], span, load)
        missing_s, back_s = MISSING[scenario]
        found = replay(
            arm.policy,
            server,
            lambda at_s: self.report.view(at_s, as_seen=missing_s <= at_s < back_s),
            first_s=CHECK_S,
            last_s=END_S,
            offline_s=self.report.offline_s,
            seed=self.seed,
        )
        return _events(found, arm_name, name)


def _events(found: Replayed, arm: str, server: str) -> list[Event]:
    events = []
    for at_s, decision in found.looks:
        last = decision is found.decision
        fields = {
            "server": server,
            "policy": decision.policy,
            "moved": decision.moved,
            "old": str(decision.old),
            "target": str(decision.target),
            "chosen": str(found.chosen) if last else None,
            "intent": None if decision.intent is None else str(decision.intent.span),
            "reason": decision.reason,
            "predicted_gain": decision.predicted_tps - decision.expected_stay_tps,
        }
        events.append(Event(at_s, "decisions", arm, fields))
    old, new = found.decision.old, found.chosen
    if found.decision.moved and old is not None:
        fields = {
            "server": server,
            "old_start": old.start,
            "old_end": old.end,
            "new_start": new.start,
            "new_end": new.end,
            "kept": new.length - found.blocks_loaded,
            "loaded": found.blocks_loaded,
            "redundant": found.redundant,
            "no_op": new == old,
            "out_of_service_s": found.reload_s,
        }
        events.append(Event(found.decided_s + found.reload_s, "reloads", arm, fields))
    return events


def build_report_389(settings: RunSettings) -> Report389:
    """The experiment that the settings describe.

    :raises BadInput: for scenarios that there are not
    """
    named = settings.scenarios
    wanted = list(MISSING) if named in ("default", "all") else [named] if isinstance(named, str) else named
    for name in wanted:
        if name not in MISSING:
            raise BadInput("scenarios", name, f"default, all, or some of {', '.join(MISSING)}")
    return Report389(Report.read(), wanted, settings.arms, settings.seed)
