"""Judges +exp=record_dht: whether the recording shows a swarm that a simulation can start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from swarmlab.analysis.checks import assume, expect, guard
from swarmlab.analysis.tables import number
from swarmlab.judges.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from swarmlab.analysis.checks import Finding
    from swarmlab.record.load import Run

FIGURE_KINDS = ("views",)
ARM = "swarm"


def measure(run: Run, expected: dict[str, Any]) -> Measured:
    """Looks, servers and what was missing, from the recording itself."""
    metrics: dict[str, Any] = {}

    def findings() -> Iterator[Finding]:
        status, world = run.info.get("status"), run.info.get("world")
        yield assume("run / status", status in ("complete", "interrupted"), f"the run is {status}")
        yield assume("run / world", world == "real", f"the world is {world}")
        metrics.update(summarize(run.history("views")))
        for metric, wanted in expected["recording"].items():
            yield expect(metric, metrics.get(metric), wanted)

    found = guard("record", findings)
    return Measured({ARM: metrics}, {"recording": {ARM: metrics}}, tuple(found))


def summarize(views: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the looks in the order of time."""
    shown = [{server["peer_id"] for server in view["servers"]} for view in views]
    everybody = set().union(*shown)
    held = [_unserved(view) for view in views]
    return {
        "looks": len(views),
        "recorded_s": views[-1]["seen_at_s"] - views[0]["seen_at_s"] if views else None,
        "servers": len(everybody),
        "servers_least": min(map(len, shown), default=0),
        "blocks_unserved_most": max(held, default=None),
        "problems": sum(view["problems"] for view in views),
    }


def _unserved(view: Mapping[str, Any]) -> int:
    served = {
        block for server in view["servers"] if server["state"] == "online" for block in range(*server["span"])
    }
    return view["n_blocks"] - len(served)


def table(summary: Mapping[str, Any]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, title="A swarm as its DHT showed it", title_justify="left")
    metrics = summary["arms"][ARM]
    for name in metrics:
        shown.add_column(name.replace("_", " "), justify="right", overflow="fold")
    shown.add_row(*(number(value, ".4g") for value in metrics.values()))
    return shown
