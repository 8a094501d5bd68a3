"""Asks servers themselves whether they are there and hold their blocks, past the DHT, all at once and not for long.

Runs in the DHT's process, which has the connections. A question is petals' own ``rpc_info`` for the first and the last
block, so unmodified servers answer it, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2
from petals.data_structures import UID_DELIMITER
from petals.server.handler import TransformerConnectionHandler

from swarmlab.placement.testimony import Answer
from swarmlab.types import Span

ANSWER_S = 5.0  # seconds; a server that takes longer is silent; petals waits as long for a ping
KNOCKS, PAUSE_S = 3, 0.25  # nobody listens there if a machine says so each of so many times, so far apart
KNOCK_S = 2.0
TRIES = 2
REPLACE_S = 2.0  # within which new handlers take the place of dead ones

# libp2p's daemon, in the text of its error: a peer that has no such handlers, and each address that it tried
NO_HANDLER = re.compile(r"protocols? not supported")
NO_CONNECTION = "failed to dial"
ADDRESS = re.compile(r"\[(/(?:ip[46]|dns[46]?|dnsaddr)/\S+)\]")
TCP = re.compile(r"/ip[46]/([^/]+)/tcp/(\d+)$")


@dataclass(frozen=True)
class Limits:
    """See the constants."""

    answer_s: float = ANSWER_S
    knocks: int = KNOCKS
    pause_s: float = PAUSE_S
    knock_s: float = KNOCK_S
    replace_s: float = REPLACE_S


async def ask_all(
    _dht: Any, node: Any, *, spans: Mapping[str, Span], prefix: str, limits: Limits
) -> dict[str, Answer]:
    """What each server answers; never raises because of one of them.

    Given to ``dht.run_coroutine`` in a ``functools.partial``, with what can be sent to another process.

    :param node: a running hivemind DHTNode
    :param spans: what each server was believed to hold, by peer id
    """
    answers = await asyncio.gather(
        *(_ask(node.p2p, peer, span, prefix, limits) for peer, span in spans.items())
    )
    return dict(zip(spans, answers, strict=True))


async def _ask(p2p: Any, peer: str, span: Span, prefix: str, limits: Limits) -> Answer:
    n_without_handlers = 0
    for left in reversed(range(TRIES)):
        try:
            await asyncio.wait_for(_has_blocks(p2p, peer, span, prefix), limits.answer_s)
            return Answer.SERVES
        except P2PHandlerError:
            return Answer.LEFT  # its handler says that it has no such block
        except P2PDaemonError as error:
            if NO_CONNECTION in str(error):
                return await _knock(doors_in(str(error)), limits)
            # an old connection broke, or there are no handlers: another try shows whether there can be a new one, or
            # whether they were just being replaced
            without_handlers = bool(NO_HANDLER.search(str(error)))
            n_without_handlers += without_handlers
            if left:
                await asyncio.sleep(limits.replace_s if without_handlers else limits.pause_s)
        except Exception:  # noqa: BLE001 - no answer in time, or a name that is none: nothing is known of it
            return Answer.SILENT
    return Answer.LEFT if n_without_handlers == TRIES else Answer.SILENT


async def _has_blocks(p2p: Any, peer: str, span: Span, prefix: str) -> None:
    """
    :raises P2PHandlerError: if it has not; and all that the network may raise
    """
    stub = TransformerConnectionHandler.get_stub(p2p, PeerID.from_base58(peer))
    ends = sorted({span.start, span.end - 1})
    uids = [runtime_pb2.ExpertUID(uid=f"{prefix}{UID_DELIMITER}{block}") for block in ends]
    await asyncio.gather(*(stub.rpc_info(uid) for uid in uids))


async def _knock(doors: Sequence[tuple[str, int]], limits: Limits) -> Answer:
    """The daemon could not connect; it says "dial backoff" instead of why to whoever tries again soon."""
    for left in reversed(range(limits.knocks)):
        refusals = await asyncio.gather(*(_refuses(host, port, limits.knock_s) for host, port in doors))
        if not doors or not all(refusals):
            return Answer.SILENT
        if left:
            await asyncio.sleep(limits.pause_s)
    return Answer.REFUSED


def doors_in(text: str) -> list[tuple[str, int]]:
    """Hosts and ports that tell whether a server is there, from the daemon's error about all addresses it tried.

    Those that mean the same everywhere, if there are any. Otherwise those of the local network, then this machine's
    own; but none if the server has addresses on which one does not knock (relays, QUIC, names).
    """
    addresses = ADDRESS.findall(text)
    found = [match for address in addresses if (match := TCP.match(address))]
    doors = sorted({(match[1], int(match[2])) for match in found})
    public = [door for door in doors if ipaddress.ip_address(door[0]).is_global]
    if public or len(found) < len(addresses):
        return public
    return [door for door in doors if not ipaddress.ip_address(door[0]).is_loopback] or doors


async def _refuses(host: str, port: int, within_s: float) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), within_s)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
