"""Does a swarm fit into the memories it is to run in, and how long does it take to load? Pure.

Memory is petals' own arithmetic (see ``capacity``). Seconds are estimates from rates that the plan shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmlab.errors import BadInput
from swarmlab.health.capacity import (
    GIB,
    ITEM_BYTES,
    BlockShape,
    Needs,
    blocks_that_fit,
    cache_bytes,
    needs,
    weight_bytes,
)

COLUMNS = ("weights", "cache", "autograd", "process", "in all", "could hold", "load")
MIN_CACHE_TOKENS = 256  # a server with room for less is of no use to a client


@dataclass(frozen=True)
class Rates:
    """What loading is estimated from.

    :param disk_bytes_per_s: of reading files, shared by all servers that read at once
    :param drawn_per_s: weights of a synthetic model drawn by one server, on a CPU whatever the device
    :param weights_per_s: quantized by one server
    :param stored_bytes_per_s: checked and brought to the device by one server, from a block store
    """

    disk_bytes_per_s: float = 500e6
    drawn_per_s: float = 200e6
    weights_per_s: float = 10e6
    stored_bytes_per_s: float = 250e6


# Measured by benchmarks/bench_block_store.py on two CPU cores; and on a GPU, where the way over PCIe bounds it.
CPU_RATES = Rates()
GPU_RATES = Rates(weights_per_s=2e9, stored_bytes_per_s=1e9)


@dataclass(frozen=True)
class Blocks:
    """How the model's blocks are held and where they come from.

    :param source: ``checkpoint`` (float16), ``drawn`` (made from a seed) or ``store``
    :param keeps: whether blocks are written to a store when they come from elsewhere
    """

    shape: BlockShape
    dtype: str
    quant: str
    source: str = "checkpoint"
    keeps: bool = False


@dataclass(frozen=True)
class Holder:
    """A server of the plan.

    :param blocks: which ones; of servers that choose, as many from 0 on
    :param place: index of the memory it lives in
    :param cache_tokens: attention cache, in tokens per block
    """

    name: str
    blocks: range
    place: int
    cache_tokens: int


@dataclass(frozen=True)
class Place:
    """A memory that servers share: a GPU's, or a machine's.

    :param reserved_bytes: for what is no server
    """

    name: str
    total_bytes: int
    reserved_bytes: int = 0


@dataclass(frozen=True)
class Row:
    """One server's line.

    :param alone: blocks that petals would put into that memory if the server had it for itself
    :param load_s: until all its blocks are there, if all servers start at once
    """

    holder: Holder
    needs: Needs
    alone: int
    load_s: float


@dataclass(frozen=True)
class Plan:
    """A whole swarm.

    :param name: of the swarm within its experiment
    :param store_bytes: on disk, once every block that is held has been kept; 0 without a store
    """

    name: str
    blocks: Blocks
    places: Sequence[Place]
    rows: Sequence[Row]
    rates: Rates
    store_bytes: int = 0
    taken_bytes: Sequence[int] = field(default_factory=tuple)


def plan_swarm(
    name: str,
    blocks: Blocks,
    places: Sequence[Place],
    holders: Sequence[Holder],
    rates: Rates,
    fixed_bytes: int = 0,
) -> Plan:
    """
    :param fixed_bytes: memory that each server's process takes whatever it holds
    """
    shape, kind = blocks.shape, (blocks.dtype, blocks.quant)
    rows = [
        Row(
            one,
            needs(shape, len(one.blocks), *kind, one.cache_tokens, fixed_bytes),
            blocks_that_fit(shape, places[one.place].total_bytes, *kind, one.cache_tokens),
            _load_s(blocks, len(one.blocks), rates, len(holders)),
        )
        for one in holders
    ]
    taken = [
        place.reserved_bytes + sum(row.needs.total for row in rows if row.holder.place == index)
        for index, place in enumerate(places)
    ]
    kept = {block for one in holders for block in one.blocks} if blocks.keeps else set()
    return Plan(name, blocks, places, rows, rates, len(kept) * weight_bytes(shape, *kind), taken)


def _load_s(blocks: Blocks, n_blocks: int, rates: Rates, n_servers: int) -> float:
    disk_bytes_per_s = rates.disk_bytes_per_s / n_servers
    stored = weight_bytes(blocks.shape, blocks.dtype, blocks.quant)
    if blocks.source == "store":
        return n_blocks * stored * (1 / disk_bytes_per_s + 1 / rates.stored_bytes_per_s)
    read = 0 if blocks.source == "drawn" else blocks.shape.parameters * ITEM_BYTES["float16"]
    made_s = blocks.shape.parameters / rates.weights_per_s
    if blocks.quant == "none":
        made_s = stored / rates.stored_bytes_per_s
    if blocks.source == "drawn":
        made_s += blocks.shape.parameters / rates.drawn_per_s
    written = stored if blocks.keeps else 0
    return n_blocks * ((read + written) / disk_bytes_per_s + made_s)


def check_plan(plan: Plan, free_disk_bytes: int | None = None) -> None:
    """
    :param free_disk_bytes: where the store is; None if it does not matter
    :raises BadInput: naming the number that is too large, and what would do
    """
    for index, (place, taken) in enumerate(zip(plan.places, plan.taken_bytes, strict=True)):
        if taken > place.total_bytes:
            raise _too_large(plan, index, place, taken)
    if free_disk_bytes is not None and plan.store_bytes > free_disk_bytes:
        allowed = (
            f"a disk with {_gib(plan.store_bytes)} free for the block store ({_gib(free_disk_bytes)} are)"
        )
        raise BadInput("swarm.store_dir", _gib(plan.store_bytes), allowed)


def _too_large(plan: Plan, index: int, place: Place, taken: int) -> BadInput:
    """The attention caches if smaller ones would do, else the blocks."""
    rows = [row for row in plan.rows if row.holder.place == index]
    shape, dtype = plan.blocks.shape, plan.blocks.dtype
    held = sum(row.needs.n_blocks for row in rows)
    beside = taken - sum(row.needs.cache for row in rows)
    why = (
        f"{plan.name}: {place.name} has {_gib(place.total_bytes)}, its {len(rows)} servers need {_gib(taken)}"
    )
    tokens = (place.total_bytes - beside) // (held * cache_bytes(shape, dtype, 1)) if held else 0
    if tokens >= MIN_CACHE_TOKENS:
        wanted = max(row.holder.cache_tokens for row in rows)
        return BadInput("swarm.attn_cache_tokens", wanted, f"at most {tokens // 128 * 128 or tokens} ({why})")
    each = weight_bytes(shape, dtype, plan.blocks.quant) + MIN_CACHE_TOKENS * cache_bytes(shape, dtype, 1)
    fixed = place.reserved_bytes + sum(row.needs.autograd + row.needs.fixed for row in rows)
    room = max(0, (place.total_bytes - fixed) // each)
    ways = "fewer blocks (model.n_blocks), more memories to share them"
    ways += "" if plan.blocks.quant == "nf4" else ", or model.quant=nf4"
    allowed = f"at most {room} blocks on {place.name} even with small attention caches: {ways} ({why})"
    return BadInput("blocks", f"{held} in {plan.blocks.quant} on {place.name}", allowed)


def render(plan: Plan) -> str:
    """The plan as text, a line per server and per memory."""
    blocks = plan.blocks
    held = blocks.dtype if blocks.quant == "none" else f"{blocks.quant}, computing in {blocks.dtype}"
    each = _gib(weight_bytes(blocks.shape, blocks.dtype, blocks.quant))
    lines = [
        f"{plan.name}: {len(plan.rows)} servers of {blocks.shape.n_blocks} blocks in {held}, {each} each",
        f"  {'server':<12} {'blocks':>9} {'on':<8} "
        + " ".join(f"{name:>{max(9, len(name))}}" for name in COLUMNS),
    ]
    for row in plan.rows:
        one, need = row.holder, row.needs
        amounts = (need.weights, need.cache, need.autograd, need.fixed, need.total)
        span = f"{one.blocks.start}:{one.blocks.stop}"
        lines.append(
            f"  {one.name:<12} {span:>9} {plan.places[one.place].name:<8} "
            + " ".join(f"{_gib(amount):>9}" for amount in amounts)
            + f" {row.alone:>10} {_seconds(row.load_s):>9}"
        )
    for place, taken in zip(plan.places, plan.taken_bytes, strict=True):
        left = f"{_gib(place.total_bytes - taken)} to spare" if taken <= place.total_bytes else "TOO MUCH"
        lines.append(f"  {place.name}: {_gib(taken)} of {_gib(place.total_bytes)}, {left}")
    if plan.store_bytes:
        lines.append(f"  block store: {_gib(plan.store_bytes)} of disk")
    lines += [
        "  could hold: alone on that memory, by petals' rule",
        f"  load: from {blocks.source}, all servers at once, supposing",
    ]
    return "\n".join([*lines, *(f"    {line}" for line in _suppositions(plan.rates))])


def _suppositions(rates: Rates) -> list[str]:
    made = f"{rates.weights_per_s / 1e6:g} million weights/s quantized, {rates.drawn_per_s / 1e6:g} million/s drawn"
    checked = f"{rates.stored_bytes_per_s / 1e6:g} MB/s of stored ones checked"
    return [
        f"a disk of {rates.disk_bytes_per_s / 1e6:g} MB/s that they share, and for each server",
        f"{made}, {checked}",
    ]


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB / 100 else f"{n_bytes / 2**20:.1f} MiB"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
