"""How a running swarm is named: the addresses of its peers, and which model of those announced in its DHT is meant."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# /ip4/127.0.0.1/tcp/31337/p2p/Qm...; ids are base58: a SHA-256 as a multihash, or an Ed25519 key
PEER = re.compile(
    r"/(?P<kind>ip4|ip6|dns|dns4|dns6)/(?P<host>[^/]+)/(tcp|udp)/(?P<port>\d{1,5})(/[a-z0-9-]+)*"
    r"/p2p/(Qm[1-9A-HJ-NP-Za-km-z]{44}|12D3KooW[1-9A-HJ-NP-Za-km-z]{44})"
)


def check_peers(peers: Sequence[str], field: str) -> None:
    """
    :param field: how whoever gave them names them, for the error
    :raises BadInput: if one is no address of a peer
    """
    for peer in peers:
        found = PEER.fullmatch(peer)
        if not found or not _sound(found):
            raise BadInput(
                field, peer, "addresses of peers, as in /ip4/127.0.0.1/tcp/31337/p2p/Qm... (46 letters)"
            )


def _sound(found: re.Match[str]) -> bool:
    if not 0 < int(found["port"]) < 2**16:
        return False
    try:
        return "ip" not in found["kind"] or ipaddress.ip_address(found["host"]).version == int(
            found["kind"][-1]
        )
    except ValueError:
        return False


def model_meant(
    announced: Callable[[], Mapping[str, int]],
    prefix: str | None,
    n_blocks: int | None,
    *,
    field: str,
    blocks: str,
) -> tuple[str, int]:
    """The prefix of a model's keys and its number of blocks; what is not given is what its servers announce.

    :param announced: asks the DHT, only if it has to be asked
    :param field: how whoever asks names the prefix, for the error
    :param blocks: and the number of blocks
    :raises BadInput: if it is not clear which model is meant
    """
    if prefix is not None and n_blocks is not None:
        return prefix, n_blocks
    models = announced()
    names = [prefix] if prefix is not None else list(models)
    if len(names) == 1 and names[0] in models:
        return names[0], n_blocks or models[names[0]]
    known = ", ".join(f"{name} ({count} blocks)" for name, count in models.items()) or "none"
    raise BadInput(field, prefix, f"with {blocks}, or one that its servers announce: {known}")
