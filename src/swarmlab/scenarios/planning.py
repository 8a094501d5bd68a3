"""Which servers an experiment would start, and whether they fit: what ``python -m swarmlab.doctor plan`` shows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from swarmlab.bridge.models.ensure import published_folder
from swarmlab.bridge.models.llama_shapes import DRAWN, PUBLISHED, LlamaShape
from swarmlab.bridge.models.smollm2 import FOLDER
from swarmlab.bridge.models.tiny_llama import HEADS, HIDDEN, INNER, MIN_BLOCKS
from swarmlab.errors import BadInput
from swarmlab.health.capacity import BlockShape
from swarmlab.health.swarm_plan import CPU_RATES, GPU_RATES, Blocks, Holder, Place, Plan, Rates, plan_swarm
from swarmlab.scenarios import rebalance_plan, recovery_speed_build, soak_build
from swarmlab.scenarios.failover_files import FOLDER as FAILOVER
from swarmlab.scenarios.failover_files import load_scenarios, scale
from swarmlab.scenarios.failure_rates import stages
from swarmlab.settings import RunSettings
from swarmlab.swarm.cluster import deal, starts_fresh
from swarmlab.swarm.spec import BASE_BYTES, FRESH_SERVER_BYTES, SERVER_BYTES
from swarmlab.types import Span

CACHE_OPTION = "--attn_cache_tokens"
# Of a server on a GPU: CUDA's context and what torch keeps for products; an assumption.
CONTEXT_BYTES = 600 * 2**20
# From a server's start until it begins to load: imports and joining the DHT, measured on two busy cores.
IMPORT_S = 20.0


def plans_of(
    settings: RunSettings, places: Sequence[Place], rates: Rates | None = None, *, stored: bool = False
) -> list[Plan]:
    """A plan for every swarm that a run would start, one after the other.

    :param places: GPUs or other memories that the servers share; empty: this machine's own memory is not a GPU's
    :param stored: whether all blocks are in the store already
    :raises BadInput: for an experiment that starts no servers, or a model that nothing is known of
    """
    on_gpu = any(place.name.startswith("gpu") for place in places)
    shape = shape_of(settings)
    swarm, model = settings.swarm, settings.model
    drawn = model.name in DRAWN and model.path is None
    blocks = Blocks(
        shape,
        swarm.torch_dtype,
        model.quant,
        source="store" if stored else "drawn" if drawn else "checkpoint",
        keeps=drawn or swarm.store_dir is not None,
    )
    fresh = starts_fresh(settings.cluster, "cuda" if on_gpu else swarm.device)
    fixed_bytes = CONTEXT_BYTES if on_gpu else FRESH_SERVER_BYTES if fresh else SERVER_BYTES
    rates = rates or (GPU_RATES if on_gpu else CPU_RATES)
    plans = []
    for name, servers in swarms_of(settings, shape.n_blocks).items():
        dealt = deal(len(servers), len(places), settings.cluster.deal)
        holders = [
            Holder(server, range(span.start, span.end), place, tokens or swarm.attn_cache_tokens)
            for (server, (span, tokens)), place in zip(servers.items(), dealt, strict=True)
        ]
        plans.append(plan_swarm(name, blocks, places, holders, rates, fixed_bytes))
    return plans


def machine(memory_bytes: int) -> Place:
    """This machine's memory as a place for servers."""
    return Place("memory", memory_bytes, BASE_BYTES)


def swarms_of(settings: RunSettings, n_blocks: int) -> dict[str, dict[str, tuple[Span, int | None]]]:
    """Blocks and own attention cache (tokens) of each server, for each swarm of a run.

    :raises BadInput: if the experiment starts none, or the model has too few blocks for it
    """
    experiment = settings.experiment
    if experiment == "failover":
        return _failover(settings, n_blocks)
    if experiment == "failover_soak":
        return {experiment: _sixteenths(soak_build.SERVERS, n_blocks)}
    if experiment == "recovery_speed":
        return {experiment: _sixteenths(recovery_speed_build.SERVERS, n_blocks)}
    if experiment == "failure_rates":
        return {experiment: {name: (span, None) for name, span in stages(n_blocks).items()}}
    if experiment in ("rebalance", "rebalance_under_load", "sim_vs_real"):
        layouts = {
            experiment: (*rebalance_plan.SWARM, rebalance_plan.WIDE),
            rebalance_plan.SLOW_DISK: rebalance_plan.SLOW_SWARM,
        }
        return {
            name: {place.name: (place.scaled(n_blocks).span, None) for place in layout}
            for name, layout in layouts.items()
        }
    raise BadInput("+exp", experiment, "an experiment that starts servers; this one starts none")


def _failover(settings: RunSettings, n_blocks: int) -> dict[str, dict[str, tuple[Span, int | None]]]:
    folder = Path(settings.scenarios_dir) if settings.scenarios_dir else FAILOVER
    return {
        one.topology: {name: (span, _cache_of(one.argv[name])) for name, span in one.servers.items()}
        for one in load_scenarios(settings.scenarios, n_blocks, folder)
    }


def _cache_of(argv: Sequence[str]) -> int | None:
    return int(argv[argv.index(CACHE_OPTION) + 1]) if CACHE_OPTION in argv else None


def _sixteenths(servers: Mapping[str, tuple[int, int]], n_blocks: int) -> dict[str, tuple[Span, int | None]]:
    return {name: (scale(start, end, n_blocks), None) for name, (start, end) in servers.items()}


def shape_of(settings: RunSettings) -> BlockShape:
    """Sizes of the model that the settings mean; its weights need not be there.

    :raises BadInput: if nothing is known of it
    """
    model = settings.model
    if model.path is None and model.name == "tiny_llama":
        return BlockShape(model.n_blocks or MIN_BLOCKS, HIDDEN, INNER, HEADS, HEADS)
    if model.path is None and model.name in DRAWN:
        return _block_shape(DRAWN[model.name], model.n_blocks)
    if model.path is None and model.name in PUBLISHED:
        return _block_shape(PUBLISHED[model.name], None)
    folder = Path(model.path) if model.path else Path(settings.models_dir) / FOLDER
    try:
        return BlockShape.of_config(json.loads((folder / "config.json").read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise BadInput("model.path", str(folder), f"a folder with a Llama's config.json ({error})") from None


def check_in_time(settings: RunSettings, plans: Sequence[Plan]) -> None:
    """
    :raises BadInput: if a server would not be ready by the deadline, naming the seconds that it takes by estimate
    """
    name, slowest = max(
        ((one.name, row) for one in plans for row in one.rows), key=lambda named: named[1].load_s
    )
    needed_s, deadline_s = slowest.load_s + IMPORT_S, settings.swarm.start_deadline_s
    if needed_s <= deadline_s:
        return
    allowed = (
        f"at least {math.ceil(needed_s)}, by estimate ({name}: {slowest.holder.name} loads for {slowest.load_s:.0f} s, "
        f"after {IMPORT_S:g} s until it begins); or fill a block store first (python -m swarmlab.bridge.fill_store; "
        "plan with --stored)"
    )
    raise BadInput("swarm.start_deadline_s", f"{deadline_s:g}", allowed)


def is_here(settings: RunSettings) -> str:
    """Whether the weights of the model are on this machine, in words; empty if they are, or need not be."""
    model = settings.model
    if model.path is None and model.name in PUBLISHED:
        try:
            published_folder(model.name, Path(settings.models_dir))
        except BadInput as error:
            return str(error)
    return ""


def _block_shape(shape: LlamaShape, n_blocks: int | None) -> BlockShape:
    return BlockShape(
        n_blocks or shape.n_blocks, shape.hidden_size, shape.intermediate_size, shape.heads, shape.kv_heads
    )
