"""A swarm of +exp=rebalance: every server where the plan wants it, watched from the first to the last moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from swarmlab.errors import SwarmFailed
from swarmlab.record.rundir import RunDir
from swarmlab.record.sampler import Sampler
from swarmlab.scenarios.experiment import Progress
from swarmlab.scenarios.rebalance_clients import Delivered
from swarmlab.scenarios.rebalance_plan import Place, Starter
from swarmlab.scenarios.rebalance_watch import TAIL_S, Recording
from swarmlab.swarm import ready
from swarmlab.swarm.deploy import Swarm, deploy
from swarmlab.swarm.spec import ServerSpec, SwarmSpec
from swarmlab.types import ServerRecord, ServerState

JOIN_S, ONLINE_S = 60.0, 90.0
IMBALANCED = "Swarm is imbalanced, server will load other blocks"  # petals' own line about a decision to move


@contextmanager
def recorded_swarm(
    swarm_spec: SwarmSpec,
    starter: Starter,
    places: Sequence[Place],
    later: Sequence[Place],
    scenario: str,
    run_dir: RunDir,
    progress: Progress,
) -> Iterator[tuple[Swarm, Recording]]:
    """Start the servers, watch them until the end of the block, then tear the swarm down.

    :param swarm_spec: without servers yet
    :param later: servers that may join
    :param scenario: the first one
    :raises SwarmFailed: if a server does not start, or not where it should, or the swarm could not be watched
    """
    specs = [starter.spec(place, number) for number, place in enumerate(places)]
    scaled = starter.settings.scaled
    spec = replace(
        swarm_spec,
        servers=tuple(specs[:1]),
        update_period_s=scaled(starter.settings.update_period_s),
        expiration_s=scaled(starter.settings.expiration_s),
    )
    up = threading.Event()
    known = {place.name: place for place in (*places, *later)}
    note = partial(_note_state, run_dir, progress, starter.arm, scenario, up)
    with ExitStack() as stack:
        swarm = stack.enter_context(deploy(spec, starter.folder, on_state=note, wait=False, whole=False))
        recording = Recording(run_dir.history, starter.arm, swarm, known, Delivered(), scenario, starter.seed)
        tail = stack.enter_context(Sampler(recording.tail, TAIL_S, "tail"))
        _start(swarm, recording, places, specs)
        looks = stack.enter_context(Sampler(recording.look, starter.settings.sample_every_s, "looks"))
        up.set()
        yield swarm, recording
        if failure := tail.failure or looks.failure:
            raise SwarmFailed(f"the swarm could not be watched: {failure}")
        recording.tail()
        _note_lines(recording, swarm)


def wait(predicate: Callable[[], Any], deadline_s: float) -> Any:
    """What the predicate gives once it is true; None at the deadline."""
    try:
        return ready.wait_for(predicate, deadline_s, "")
    except TimeoutError:
        return None


def _start(swarm: Swarm, recording: Recording, places: Sequence[Place], specs: Sequence[ServerSpec]) -> None:
    """One server after the other, so that each one's own choice is the span that it should begin with."""
    for place, spec in zip(places, specs, strict=True):
        if place.name not in swarm.servers:
            swarm.add(spec)
        record = wait(partial(_announced, swarm, recording, place.name), JOIN_S)
        if record is None:
            raise SwarmFailed(f"not announced within {JOIN_S:.0f} s: {swarm.servers[place.name].report()}")
        if record.span != place.span:
            raise SwarmFailed(f"{place.name} chose blocks {record.span} instead of {place.span}")
    swarm.wait_ready(deadline_s=ONLINE_S)


def _announced(swarm: Swarm, recording: Recording, name: str) -> ServerRecord | None:
    """What the DHT shows of a server that is there.

    :raises SwarmFailed: if it died
    """
    if not swarm.servers[name].alive:
        raise SwarmFailed(swarm.servers[name].report())
    record = recording.record_of(name)
    return record if record is not None and record.state is not ServerState.OFFLINE else None


def _note_state(
    run_dir: RunDir,
    progress: Progress,
    arm: str,
    scenario: str,
    up: threading.Event,
    name: str,
    state: str,
    detail: str,
) -> None:
    """Record every change of a process's state; show those of the start."""
    run_dir.history.write(
        "servers", arm, scenario=scenario, server=name, state=state, detail=detail, source="process"
    )
    if not up.is_set():
        progress.on_state(name, state, detail)


def _note_lines(recording: Recording, swarm: Swarm) -> None:
    """Petals' own words about its decisions to move: the judge holds them against what was watched."""
    for name, handle in swarm.servers.items():
        if not handle.log_path.exists():
            continue
        for line in handle.log_path.read_text(errors="replace").splitlines():
            if IMBALANCED in line:
                recording.write("logs", source=name, level="info", line=line, about="imbalanced")
