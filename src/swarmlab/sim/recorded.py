"""A population as the DHT of a real swarm showed it, from what +exp=record_dht wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.errors import BadInput
from swarmlab.record.load import DamagedRun, load_run, read_jsonl
from swarmlab.sim.population import Ending, Member, Visit
from swarmlab.types import MAX_THROUGHPUT_TPS, ServerState, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GONE = {ServerState.OFFLINE.value}


@dataclass(frozen=True)
class Recorded:
    """What a recording says about a swarm.

    :param members: servers with their visits, in seconds since the first look; who was there then is so from the
        beginning, with the blocks it held, and who was there at the last look stays
    """

    n_blocks: int
    members: tuple[Member, ...]


def recorded(path: Path | str) -> Recorded:
    """Read a recording: a run folder of +exp=record_dht, or its ``views.jsonl``.

    A server holds as many blocks, and passes as many tokens/s, as it announced when it was first seen. One that was
    missing from looks in between was there all the time if it came back with the same blocks: such holes are mostly
    lost records.

    :raises BadInput: if there is none, or if it shows no server
    """
    views = _views(path)
    try:
        n_blocks = int(views[0]["n_blocks"])
        seen = [(view["seen_at_s"] - views[0]["seen_at_s"], _servers(view)) for view in views]
        names = sorted({name for _, servers in seen for name in servers})
        members = tuple(_member(name, seen) for name in names)
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(path, f"its rows are something else ({type(error).__name__}: {error})") from error
    if not members:
        raise _refused(path, "it shows no server")
    return Recorded(n_blocks, members)


def _views(path: Path | str) -> list[dict[str, Any]]:
    try:
        rows = read_jsonl(Path(path)) if Path(path).is_file() else _views_of_run(path)
    except DamagedRun as error:
        raise _refused(path, str(error)) from error
    except OSError as error:
        raise _refused(path, f"it cannot be read ({error.strerror})") from error
    if not rows:
        raise _refused(path, "there is no look in it")
    return rows


def _views_of_run(path: Path | str) -> list[dict[str, Any]]:
    if not (Path(path) / "run.json").is_file():
        raise _refused(path)
    run = load_run(path)
    if run.info["exp"] != "record_dht":
        raise _refused(path, f"this run is of {run.info['exp']}")
    return run.history("views")


def _refused(path: Path | str, why: str | None = None) -> BadInput:
    wanted = "the folder of a run of +exp=record_dht, or its views.jsonl"
    return BadInput("sim.from_record", str(path), "; ".join(filter(None, (wanted, why))))


def _servers(view: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {server["peer_id"]: server for server in view["servers"] if server["state"] not in GONE}


def _member(name: str, seen: Sequence[tuple[float, Mapping[str, Mapping[str, Any]]]]) -> Member:
    looks = [(at_s, servers[name]) for at_s, servers in seen if name in servers]
    first_s, server = looks[0]
    span = Span(*server["span"])
    visits: list[Visit] = []
    start_s, last_s, held = first_s, first_s, span
    for at_s, shown in looks[1:]:
        now = Span(*shown["span"])
        if _missed(seen, last_s, at_s) and now != held:
            visits.append(Visit(start_s, last_s, Ending.CRASH))
            start_s = at_s
        last_s, held = at_s, now
    visits.append(Visit(start_s, math.inf if last_s == seen[-1][0] else last_s, Ending.CRASH))
    tps = min(max(float(server["throughput_tps"]), 0.0), MAX_THROUGHPUT_TPS)
    kept = tuple(visit for visit in visits if visit.end_s > visit.start_s)
    return Member(name, span.length, tps, kept, held=span if first_s == 0 else None)


def _missed(seen: Sequence[tuple[float, Any]], last_s: float, at_s: float) -> bool:
    return any(last_s < between_s < at_s for between_s, _ in seen)
