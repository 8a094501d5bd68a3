"""Reads the scenario files of +exp=failover: who holds what, what is asked, what goes wrong and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from swarmlab.errors import BadInput
from swarmlab.faults.schedule import FaultSpec, parse_faults
from swarmlab.types import Span

FOLDER = Path(__file__).resolve().parents[3] / "experiments" / "failover"
KEYS = {"title", "set", "topology", "workload", "faults", "chain", "client"}
WORKLOADS = ("greedy", "deep_prompts", "beam_search", "two_calls")
SERVER_NEEDS = {"name", "start", "end"}
SERVER_KEYS = SERVER_NEEDS | {"argv", "port"}
UNITS = 16  # topologies are written in sixteenths of the model


@dataclass(frozen=True)
class Workload:
    """One generation; the kinds are those of swarmlab.bridge.clients.workloads.

    :param batch: sequences generated at once
    :param prompt_tokens: length of each prompt
    :param new_tokens: tokens to generate; the first comes from the prompt's own step
    :param prompt_chunks: steps in which the prompt is fed
    :param beams: for beam_search
    :param deep_prompt_tokens: for deep_prompts
    """

    batch: int
    prompt_tokens: int
    new_tokens: int
    kind: str = "greedy"
    prompt_chunks: int = 1
    beams: int = 1
    deep_prompt_tokens: int = 0

    @property
    def max_length(self) -> int:
        """Positions to reserve attention caches for."""
        return self.prompt_tokens + self.new_tokens

    @property
    def plainly_greedy(self) -> bool:
        """Whether transformers' own forward pass can be the reference."""
        return self.kind == "greedy" and self.prompt_chunks == 1

    @property
    def n_steps(self) -> int:
        """Steps of the session: the pieces of the prompt, then one per further token."""
        # a second generate() call feeds the last token of the first one
        return self.prompt_chunks + self.new_tokens - 1


@dataclass(frozen=True)
class Scenario:
    """One way in which servers fail under a client.

    :param topology: name of the topology; scenarios that share one run on the same swarm, one after another
    :param servers: name and span of each server
    :param argv: further arguments of petals' server command, by server name
    :param client: fields of petals' ClientConfig that this scenario sets, beside those of the run
    :param ports: of servers that are to listen on a certain one
    :param chain: the servers that the client must be using when the first fault is due; empty if any will do
    """

    name: str
    title: str
    set_name: str
    topology: str
    servers: Mapping[str, Span]
    workload: Workload
    faults: tuple[FaultSpec, ...]
    chain: tuple[str, ...] = ()
    argv: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


def load_scenarios(wanted: str | Sequence[str], n_blocks: int, folder: Path = FOLDER) -> tuple[Scenario, ...]:
    """The scenarios that ``wanted`` means, those of one topology together.

    :param wanted: ``default``, ``all``, a name, or several names
    :param n_blocks: blocks of the model that the topologies are scaled to
    :raises BadInput: for an unknown name or a file that makes no sense
    """
    paths = {path.stem: path for path in sorted((folder / "scenarios").glob("*.yaml"))}
    topologies = _read(folder / "topologies.yaml")
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if names in (["all"], ["default"]):
        scenarios = [_parse(path, topologies, n_blocks) for path in paths.values()]
        chosen = [one for one in scenarios if names == ["all"] or one.set_name == "default"]
    else:
        for name in names:
            if name not in paths:
                raise BadInput("scenarios", name, f"default, all, or some of {', '.join(paths)}")
        chosen = [_parse(paths[name], topologies, n_blocks) for name in dict.fromkeys(names)]
    if not chosen:
        raise BadInput("scenarios", wanted, f"some of {', '.join(paths) or 'the files in ' + str(folder)}")
    order = list(topologies)
    return tuple(sorted(chosen, key=lambda one: order.index(one.topology)))


def scale(start: int, end: int, n_blocks: int) -> Span:
    """A span written in sixteenths as blocks of a model with ``n_blocks``."""
    return Span(start * n_blocks // UNITS, end * n_blocks // UNITS)


def _parse(path: Path, topologies: Mapping[str, Any], n_blocks: int) -> Scenario:
    entry = _read(path)
    where = f"scenarios.{path.stem}"
    unknown = set(entry) - KEYS
    if unknown:
        raise BadInput(f"{where}.{min(unknown)}", "a key", ", ".join(sorted(KEYS)))
    topology = str(entry.get("topology"))
    if topology not in topologies:
        raise BadInput(f"{where}.topology", topology, ", ".join(topologies))
    if n_blocks < UNITS:
        raise BadInput(
            "model.n_blocks", n_blocks, f"at least {UNITS}: the scenarios split a model over many servers"
        )
    servers = _servers(f"topologies.{topology}", topologies[topology], n_blocks)
    workload = _workload(entry.get("workload"), where)
    to_span = partial(scale, n_blocks=n_blocks)
    try:
        faults = parse_faults(entry.get("faults", ()), list(servers), workload.n_steps, to_span)
    except BadInput as error:
        raise BadInput(f"{where}.{error.field}", error.value, error.allowed) from None
    title, set_name = str(entry.get("title", path.stem)), str(entry.get("set", "more"))
    chain = tuple(entry.get("chain", ()))
    for name in chain:
        if name not in servers:
            raise BadInput(f"{where}.chain", name, ", ".join(servers))
    argv = {one["name"]: tuple(map(str, one.get("argv", ()))) for one in topologies[topology]}
    client = dict(entry.get("client", {}))
    ports = {one["name"]: one["port"] for one in topologies[topology] if "port" in one}
    return Scenario(
        path.stem, title, set_name, topology, servers, workload, faults, chain, argv, client, ports
    )


def _servers(where: str, entries: Any, n_blocks: int) -> dict[str, Span]:
    """Name and span of each server of a topology; together they hold every block."""
    if not isinstance(entries, list) or not entries:
        raise BadInput(where, entries, "a list of servers")
    spans: dict[str, Span] = {}
    for index, entry in enumerate(entries):
        place = f"{where}[{index}]"
        if not isinstance(entry, Mapping) or not SERVER_NEEDS <= set(entry) <= SERVER_KEYS:
            needed, more = ", ".join(sorted(SERVER_NEEDS)), ", ".join(sorted(SERVER_KEYS - SERVER_NEEDS))
            raise BadInput(place, entry, f"the keys {needed}; also {more}")
        name, start, end = str(entry["name"]), entry["start"], entry["end"]
        if name in spans:
            raise BadInput(f"{place}.name", name, "a name used once")
        if not isinstance(start, int) or not 0 <= start < UNITS:
            raise BadInput(f"{place}.start", start, f"0 to {UNITS - 1}, in sixteenths of the model")
        if not isinstance(end, int) or not start < end <= UNITS:
            raise BadInput(f"{place}.end", end, f"{start + 1} to {UNITS}, in sixteenths of the model")
        if not isinstance(entry.get("port", 0), int):
            raise BadInput(f"{place}.port", entry["port"], "a number")
        spans[name] = scale(start, end, n_blocks)
    held = {block for span in spans.values() for block in span}
    missing = [block for block in range(n_blocks) if block not in held]
    if missing:
        allowed = f"every block of [0, {n_blocks}) held by a server"
        raise BadInput(where, f"a gap at block {missing[0]}", allowed)
    return spans


def _workload(entry: Any, where: str) -> Workload:
    known = {one.name for one in fields(Workload)}
    needed = {one.name for one in fields(Workload) if one.default is MISSING}
    if not isinstance(entry, Mapping) or not needed <= set(entry) <= known:
        raise BadInput(
            f"{where}.workload", entry, f"{', '.join(sorted(needed))}; {', '.join(sorted(known - needed))}"
        )
    if entry.get("kind", "greedy") not in WORKLOADS:
        raise BadInput(f"{where}.workload.kind", entry["kind"], ", ".join(WORKLOADS))
    for name, value in entry.items():
        if name != "kind" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise BadInput(f"{where}.workload.{name}", value, "a whole number of at least 1")
    return Workload(**entry)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(str(path), "unreadable", f"a YAML file ({error})") from error
    if not isinstance(content, dict):
        raise BadInput(str(path), type(content).__name__, "a YAML mapping")
    return content
