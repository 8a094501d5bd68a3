"""What the swarm's DHT holds, as one SwarmView: a read that keeps expirations, and a pure translation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hivemind.utils import get_dht_time

from swarmlab.types import MAX_THROUGHPUT_TPS, Intent, ServerRecord, ServerState, Span, SwarmView

# petals' own numbers for a server's state, as they stand in a record
STATES = {0: ServerState.OFFLINE, 1: ServerState.JOINING, 2: ServerState.ONLINE}
UID_DELIMITER = "."
# Our servers' addition to a record's details, which petals ignores: what they serve and where they are going.
MOVE_KEY = "swarmlab_move"
# The same: that a server moves as our shared plan has it. Petals' own servers and pinned ones do not.
PLAN_KEY = "swarmlab_plan"
# An intent counts for so long; one that is older, or from further ahead than clocks differ, is no promise.
MAX_INTENT_AGE_S, MAX_CLOCK_DIFFERENCE_S = 900.0, 5.0


class RawRecord(NamedTuple):
    """What one peer stored about one block; nothing in it but ``block`` is to be trusted.

    :param value: petals writes ``(state, throughput, details)``
    :param expires_at_s: on the DHT's clock
    """

    block: int
    peer_id: Any
    value: Any
    expires_at_s: Any


async def read_records(_dht: Any, node: Any, *, prefix: str, n_blocks: int) -> list[RawRecord]:
    """Read every record of the model's blocks, each with its own expiration.

    Given to ``dht.run_coroutine`` in a ``functools.partial``, or awaited directly with a node of one's own.

    :param node: a running hivemind DHTNode
    """
    keys = [f"{prefix}{UID_DELIMITER}{block}" for block in range(n_blocks)]
    # an infinite "sufficient" expiration makes the search go on to the newest value of each key
    found = await node.get_many(keys, math.inf, num_workers=n_blocks)
    records = []
    for block, key in enumerate(keys):
        value = getattr(found[key], "value", None)
        if isinstance(value, Mapping):
            for peer_id, entry in value.items():
                content, expires_at_s = getattr(entry, "value", None), getattr(entry, "expiration_time", None)
                records.append(RawRecord(block, peer_id, content, expires_at_s))
    return records


async def read_view(node: Any, prefix: str, n_blocks: int) -> tuple[SwarmView, list[str]]:
    """The swarm as ``node`` sees it now, and what was wrong with records that were left out or mended."""
    records = await read_records(None, node, prefix=prefix, n_blocks=n_blocks)
    return view_from_records(records, n_blocks, get_dht_time())


def view_from_records(
    records: Iterable[RawRecord], n_blocks: int, now_s: float
) -> tuple[SwarmView, list[str]]:
    """Translate records into a view; never raises, whatever the records say.

    Only a peer's newest record counts: a peer that came back with other blocks has old ones alive, and the union
    of both would route through blocks that it does not serve. A block missing inside the span that the newest
    record states is a lost record, not a hole. One announcement may hold records of several states, all with one
    expiration: a server that prepares a move is ONLINE with what it serves and JOINING with what it loads, and
    says both in each record (``MOVE_KEY``); that is its intent.

    :param records: as stored, in any order; expired ones are ignored
    :param now_s: on the clock of the records' expirations
    :return: the view, and one line for each record that was skipped or mended
    """
    newest: dict[str, ServerRecord] = {}
    blocks_of: dict[tuple[str, float, ServerState], list[int]] = {}
    problems: list[str] = []
    for record in records:
        try:
            parsed = _parse(record, n_blocks, now_s, problems)
        except (TypeError, ValueError, OverflowError, LookupError) as error:
            who = record.peer_id if isinstance(record.peer_id, str) else type(record.peer_id).__name__
            problems.append(f"block {record.block}, peer {who:.60}: {type(error).__name__}: {error}")
            continue
        if parsed.expires_at_s <= now_s:
            continue
        blocks_of.setdefault((parsed.peer_id, parsed.expires_at_s, parsed.state), []).append(record.block)
        known = newest.get(parsed.peer_id)
        if known is None or _rank(parsed) > _rank(known):
            newest[parsed.peer_id] = parsed
    servers = tuple(
        _with_span(record, blocks_of[peer_id, record.expires_at_s, record.state])
        for peer_id, record in newest.items()
    )
    return SwarmView(n_blocks, servers, now_s), problems


def _rank(record: ServerRecord) -> tuple[float, int, int, int]:
    # Of one announcement the records of what is served say most.
    state = list(STATES.values()).index(record.state)
    return record.expires_at_s, state, record.span.length, -record.span.start


def _parse(record: RawRecord, n_blocks: int, now_s: float, problems: list[str]) -> ServerRecord:
    """
    :raises TypeError, ValueError, OverflowError, LookupError: if the record makes no sense
    """
    if not isinstance(record.peer_id, str) or not record.peer_id:
        raise ValueError("the peer id is not a name")
    if not 0 <= record.block < n_blocks:
        raise ValueError(f"no such block in [0, {n_blocks})")
    value = record.value
    if not isinstance(value, (tuple, list)) or len(value) < 2 or isinstance(value[0], bool):
        raise ValueError("not a petals record")
    details = value[2] if len(value) > 2 and isinstance(value[2], Mapping) else {}
    expires_at_s = _number(record.expires_at_s)
    if expires_at_s is None:
        raise ValueError("no expiration")
    throughput_tps = _number(value[1])
    if throughput_tps is None or throughput_tps < 0:
        raise ValueError("throughput is not a number of tokens per second")
    if throughput_tps > MAX_THROUGHPUT_TPS:
        problems.append(f"block {record.block}, peer {record.peer_id:.60}: throughput {throughput_tps:g} cut")
    state, span = STATES[value[0]], _stated_span(details, record.block, n_blocks)
    serves, intent = _move(details.get(MOVE_KEY), n_blocks, now_s)
    if state is ServerState.JOINING and serves is not None:
        # what it loads for a move; the records of what it still serves may have been lost
        state, span = ServerState.ONLINE, serves
    return ServerRecord(
        peer_id=record.peer_id,
        span=span or Span(record.block, record.block + 1),
        throughput_tps=min(throughput_tps, MAX_THROUGHPUT_TPS),
        state=state,
        inference_tps=_bounded(details.get("inference_rps")),
        cache_tokens_left=_count(details.get("cache_tokens_left")),
        expires_at_s=expires_at_s,
        next_pings_s=_pings(details.get("next_pings")),
        intent=None if state is ServerState.OFFLINE else intent,
        movable=details.get(PLAN_KEY) is True,
    )


def _stated_span(details: Mapping[Any, Any], block: int, n_blocks: int) -> Span | None:
    """The span that a record states, if it states a sensible one; it must contain the record's own block."""
    span = _span((details.get("start_block"), details.get("end_block")), n_blocks)
    return span if span is not None and block in span else None


def move_to_details(serves: Span, wants: Span, announced_at_s: float) -> dict[str, Any]:
    """What a record of a server carries that serves one span and is going to another."""
    return {
        MOVE_KEY: {
            "serves": [serves.start, serves.end],
            "wants": [wants.start, wants.end],
            "since_s": announced_at_s,
        }
    }


def _move(said: Any, n_blocks: int, now_s: float) -> tuple[Span | None, Intent | None]:
    """What a server says it serves, and its intent; neither counts without the other, nor outside the bounds."""
    if not isinstance(said, Mapping):
        return None, None
    serves, wants = _span(said.get("serves"), n_blocks), _span(said.get("wants"), n_blocks)
    since_s = _number(said.get("since_s"))
    if serves is None or wants is None or since_s is None or wants == serves:
        return None, None
    if not now_s - MAX_INTENT_AGE_S <= since_s <= now_s + MAX_CLOCK_DIFFERENCE_S:
        return serves, None
    return serves, Intent(wants, since_s)


def _span(bounds: Any, n_blocks: int) -> Span | None:
    """A span within the model, from two numbers that may be anything."""
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        return None
    start, end = _count(bounds[0]), _count(bounds[1])
    if start is None or end is None or not start < end <= n_blocks:
        return None
    return Span(start, end)


def _with_span(record: ServerRecord, blocks: list[int]) -> ServerRecord:
    """Join the blocks of a peer's newest announcement where the record itself states no span."""
    if record.span.length > 1:
        return record
    joined = Span(min(blocks), max(blocks) + 1)
    return ServerRecord(**{**record.__dict__, "span": joined})


def _number(value: Any) -> float | None:
    """A finite number as float; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _bounded(value: Any) -> float | None:
    number = _number(value)
    return None if number is None or number < 0 else min(number, MAX_THROUGHPUT_TPS)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _pings(value: Any) -> Mapping[str, float]:
    if not isinstance(value, Mapping):
        return MappingProxyType({})
    pings = {peer: _number(seconds) for peer, seconds in value.items() if isinstance(peer, str)}
    return MappingProxyType({peer: s for peer, s in pings.items() if s is not None and s >= 0})


def view_to_json(view: SwarmView) -> dict[str, Any]:
    """Plain values for the channel to the orchestrator (``swarmlab.swarm.local`` reads them)."""
    servers = [
        {**record.__dict__, "span": [record.span.start, record.span.end], "state": record.state.value,
         "next_pings_s": dict(record.next_pings_s),
         "intent": record.intent and {
             "span": [record.intent.span.start, record.intent.span.end],
             "announced_at_s": record.intent.announced_at_s}}
        for record in view.servers
    ]  # fmt: skip
    return {"n_blocks": view.n_blocks, "servers": servers, "seen_at_s": view.seen_at_s}
