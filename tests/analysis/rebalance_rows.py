"""Histories of +exp=rebalance, made by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from swarmlab.analysis.rebalance import TIMELINE

LENGTH_S = 30.0
INFO = {
    "id": "20261130T000000Z-abcdef", "seed": 7, "world": "real", "device": "cpu", "model": {"id": "tiny_llama"},
    "host": {"cores": 2, "cpu": "a CPU"}, "status": "complete", "arms": ["petals", "swarmlab"],
    "scenarios": list(TIMELINE),
}  # fmt: skip
EVENTS = {
    "records_lost": [("records_lost", "narrow")],
    "gap": [("kill", "narrow"), ("kill", "a2")],
    "wide_joins": [("join", "wide")],
    "slow_disk": [("kill", "gap")],
}


class Story:
    """Rows by kind; scenarios follow each other, ``LENGTH_S`` each."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._now_s = 0.0

    def add(self, kind: str, t: float, arm: str, scenario: str, **row: Any) -> None:
        self.rows[kind].append({"t": t, "arm": arm, "scenario": scenario, **row})

    def scenario(self, arm: str, scenario: str, *, swarm_tps: float = 100.0) -> Story:
        """A scenario whose events are all confirmed at its second 5, with a sample every second."""
        begin = self._now_s
        self.add("phases", begin, arm, scenario, moment="begin")
        for fault, target in EVENTS[scenario]:
            for stage in ("setup", "inject", "confirm", *(["heal"] if fault == "records_lost" else [])):
                t = begin + (12.0 if stage == "heal" else 5.0)
                self.add(
                    "faults", t, arm, scenario, fault=fault, target=target, stage=stage, ok=True, detail=""
                )
        for second in range(int(LENGTH_S)):
            tps = 0.0 if 5 <= second < 11 and scenario == "gap" else swarm_tps
            t = begin + second + 0.5
            self.add(
                "balance", t, arm, scenario, swarm_tps=tps, optimal_tps=200.0, delivered_tps=20.0, quality_petals=0.8,
                quality_appendix_d=0.9, quality_optimal=tps / 200.0, announced_swarm_tps=tps,
            )  # fmt: skip
            for block in range(4):
                self.add("blocks", t, arm, scenario, block=block, announced_tps=tps, n_servers=1)
        self._now_s += LENGTH_S
        self.add("phases", self._now_s, arm, scenario, moment="end")
        return self

    def move(
        self, old: tuple[int, int], new: tuple[int, int], *, out_s: float, after_s: float = 20.0, server: str = "b1",
        kept: bool = False, **more: Any,
    ) -> Story:  # fmt: skip
        """A decision and the reload after it in the last scenario, seen in the DHT and in petals' log."""
        last = self.rows["phases"][-1]
        arm, scenario, begin = last["arm"], last["scenario"], last["t"] - LENGTH_S
        overlap = max(0, min(old[1], new[1]) - max(old[0], new[0]))
        width = new[1] - new[0]
        end = begin + after_s
        decided_s = more.pop("decided_s", end - out_s - 1.0)
        self.add("decisions", decided_s, arm, scenario, server=server, phase="check", moved=True)
        self.add("logs", decided_s, arm, scenario, source=server, about="imbalanced")
        row: dict[str, Any] = {
            "server": server, "old_start": old[0], "old_end": old[1], "new_start": new[0], "new_end": new[1],
            "kept": overlap if kept else 0, "loaded": width - overlap if kept else width,
            "redundant": 0 if kept else overlap, "no_op": old == new, "bytes_read": 10, "read_s": 0.5 * width,
            "quantize_s": 0.0, "adapter_s": 0.0, "to_device_s": 0.0, "out_of_service_s": out_s,
            "lost_block_s": 0.0 if kept else out_s * width, "throughput_tps": 100.0, "completed": True,
        }  # fmt: skip
        self.add("reloads", end, arm, scenario, **{**row, **more})
        self.add(
            "servers",
            end,
            arm,
            scenario,
            server=server,
            state="online",
            source="dht",
            start=new[0],
            end=new[1],
        )
        return self

    def session(self, outcome: str = "identical", **more: Any) -> Story:
        last = self.rows["phases"][-1]
        row: dict[str, Any] = {
            "outcome": outcome, "tokens": 50, "tokens_wrong": 0, "recoveries": 0, "stalls": [], "elapsed_s": 3.0,
        }  # fmt: skip
        self.add("sessions", last["t"] - 1.0, last["arm"], last["scenario"], **{**row, **more})
        return self


def both_arms() -> Story:
    """What the experiment expects: petals reloads for nothing and in full, ours moves once and keeps what it has."""
    story = Story()
    story.scenario("petals", "records_lost", swarm_tps=200.0)
    story.move((0, 10), (0, 10), out_s=6.0, server="a1", decided_s=8.0)
    story.scenario("petals", "gap").move((10, 20), (14, 24), out_s=7.0)
    story.session("exception", stalls=[3.0]).scenario("petals", "wide_joins").session()
    story.scenario("swarmlab", "records_lost", swarm_tps=200.0).session()
    story.scenario("swarmlab", "gap").move((10, 20), (14, 24), out_s=0.0, kept=True, total_s=2.5).session(
        recoveries=1
    )
    story.scenario("swarmlab", "wide_joins").session()
    return story
