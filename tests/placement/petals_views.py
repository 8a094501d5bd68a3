"""Views in petals' own form, so that its real functions can be asked the same question as ours."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from swarmlab.bridge import compat
from swarmlab.types import ServerState, SwarmView


@cache
def petals_modules() -> SimpleNamespace:
    """The installed petals' functions and types that placement is compared with."""
    compat.apply()
    from hivemind.p2p import PeerID
    from petals import data_structures
    from petals.server import block_selection

    return SimpleNamespace(PeerID=PeerID, data=data_structures, selection=block_selection)


@cache
def peer_name(label: str) -> str:
    """A real peer id (base58) that depends on the label only."""
    return petals_modules().PeerID(b"\x12\x20" + hashlib.sha256(label.encode()).digest()).to_base58()


def module_infos(
    view: SwarmView, *, unread: Mapping[str, set[int]] | None = None, ranges: bool = True
) -> list[Any]:
    """One petals module info per block.

    :param unread: blocks whose record of a peer did not come back from the DHT, by peer id
    :param ranges: records carry the server's whole range, as since petals 2.2.0
    """
    names = petals_modules()
    infos = [names.data.RemoteModuleInfo(uid=f"model.{block}", servers={}) for block in range(view.n_blocks)]
    states = {state: names.data.ServerState[state.name] for state in ServerState}
    for record in view.servers:
        info = names.data.ServerInfo(
            state=states[record.state],
            throughput=float(record.throughput_tps),
            start_block=record.span.start if ranges else None,
            end_block=record.span.end if ranges else None,
        )
        for block in record.span:
            if block not in (unread or {}).get(record.peer_id, set()):
                infos[block].servers[names.PeerID.from_base58(record.peer_id)] = info
    return infos


def petals_should_move(peer_id: str, infos: list[Any], balance_quality: float) -> bool:
    names = petals_modules()
    return bool(
        names.selection.should_choose_other_blocks(names.PeerID.from_base58(peer_id), infos, balance_quality)
    )


def petals_choice(n_blocks: int, infos: list[Any]) -> int:
    """Start of the blocks that petals would load."""
    return int(petals_modules().selection.choose_best_blocks(n_blocks, infos)[0])
