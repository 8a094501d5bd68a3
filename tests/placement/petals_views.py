"""Views in petals' own form, so that its real functions can be asked the same question as ours."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from swarmlab.bridge import compat
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView


@cache
def petals_modules() -> SimpleNamespace:
    """The installed petals' functions and types that placement is compared with."""
    compat.apply()
    from hivemind.p2p import PeerID
    from petals import data_structures
    from petals.server import block_selection
    from petals.utils import dht

    return SimpleNamespace(PeerID=PeerID, data=data_structures, selection=block_selection, dht=dht)


@cache
def peer_name(label: str) -> str:
    """A real peer id (base58) that depends on the label only."""
    return petals_modules().PeerID(b"\x12\x20" + hashlib.sha256(label.encode()).digest()).to_base58()


@dataclass(frozen=True)
class Announcement:
    """What one peer has stored in the DHT, as far as a read brought it back.

    :param blocks: the blocks whose records came back
    :param span: the range that the records carry, as since petals 2.2.0; None in the older format
    """

    peer_id: str
    blocks: tuple[int, ...]
    throughput_tps: float
    state: ServerState = ServerState.ONLINE
    span: Span | None = None


def announcements(view: SwarmView) -> list[Announcement]:
    """The complete records of everybody in a view."""
    return [
        Announcement(record.peer_id, tuple(record.span), record.throughput_tps, record.state, record.span)
        for record in view.servers
    ]


def module_infos(n_blocks: int, announced: list[Announcement]) -> list[Any]:
    """One petals module info per block; of two records of one peer for one block the later counts."""
    names = petals_modules()
    infos = [names.data.RemoteModuleInfo(uid=f"model.{block}", servers={}) for block in range(n_blocks)]
    for item in announced:
        info = names.data.ServerInfo(
            state=names.data.ServerState[item.state.name],
            throughput=float(item.throughput_tps),
            start_block=item.span.start if item.span else None,
            end_block=item.span.end if item.span else None,
        )
        for block in item.blocks:
            infos[block].servers[names.PeerID.from_base58(item.peer_id)] = info
    return infos


def view_of(infos: list[Any]) -> SwarmView:
    """The spans that petals makes of its records, as a view."""
    names = petals_modules()
    spans = names.dht.compute_spans(infos, min_state=names.data.ServerState.JOINING)
    records = tuple(
        ServerRecord(
            peer_id.to_base58(), Span(span.start, span.end), span.throughput, ServerState[span.state.name]
        )
        for peer_id, span in spans.items()
    )
    return SwarmView(len(infos), records)


def petals_should_move(peer_id: str, infos: list[Any], balance_quality: float) -> bool:
    names = petals_modules()
    return bool(
        names.selection.should_choose_other_blocks(names.PeerID.from_base58(peer_id), infos, balance_quality)
    )


def petals_choice(n_blocks: int, infos: list[Any]) -> int:
    """Start of the blocks that petals would load."""
    return int(petals_modules().selection.choose_best_blocks(n_blocks, infos)[0])
