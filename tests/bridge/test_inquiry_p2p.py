"""What libp2p really says of servers that serve, have left, hang, and are dead: a change of its words fails here."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p import P2P, P2PContext, ServicerBase  # noqa: E402
from hivemind.proto.runtime_pb2 import (  # noqa: E402
    ExpertInfo,  # pyright: ignore[reportAttributeAccessIssue]
    ExpertUID,  # pyright: ignore[reportAttributeAccessIssue]
)

from swarmlab.bridge.p2p_probe import LOOPBACK  # noqa: E402
from swarmlab.bridge.serving.inquiry import Limits, ask_all  # noqa: E402
from swarmlab.placement.testimony import Answer  # noqa: E402
from swarmlab.types import Span  # noqa: E402

pytestmark = pytest.mark.swarm
LIMITS = Limits(answer_s=2.0, replace_s=0.2)


class TransformerConnectionHandler(ServicerBase):
    """Answers as petals' handler does, under its name."""

    async def rpc_info(self, request: ExpertUID, context: P2PContext) -> ExpertInfo:
        del context
        if request.uid not in ("m.0", "m.1"):
            raise KeyError(request.uid)
        return ExpertInfo()


async def node(*peers: Any) -> Any:
    options: Any = compat.PRIVATE_NETWORK
    return await P2P.create(initial_peers=list(peers), host_maddrs=[LOOPBACK], **options)


async def hear() -> list[dict[str, Answer]]:
    """Answers of four servers: of all alive, with one dead, with one hanging as well, and about other blocks."""
    me = await node()
    addresses = await me.get_visible_maddrs()
    names = ("serves", "bare", "hangs", "dead")
    servers = {name: await node(*addresses) for name in names}
    try:
        for name in ("serves", "hangs", "dead"):
            await TransformerConnectionHandler().add_p2p_handlers(servers[name])

        async def ask(span: Span, *asked: str) -> dict[str, Answer]:
            peers = {name: servers[name].peer_id.to_base58() for name in asked}
            spans = dict.fromkeys(peers.values(), span)
            answers = await ask_all(None, SimpleNamespace(p2p=me), spans=spans, prefix="m", limits=LIMITS)
            return {name: answers[peer] for name, peer in peers.items()}

        heard = [await ask(Span(0, 2), *names)]
        os.kill(servers["dead"]._child.pid, signal.SIGKILL)
        heard += [
            await ask(Span(0, 2), *names),
            await ask(Span(0, 2), "dead"),
        ]  # the daemon then says "backoff"
        os.kill(servers["hangs"]._child.pid, signal.SIGSTOP)
        return [*heard, await ask(Span(1, 3), "serves", "bare", "hangs")]
    finally:
        os.kill(servers["hangs"]._child.pid, signal.SIGCONT)
        for server in (*servers.values(), me):
            await server.shutdown()


def test_libp2p_tells_a_dead_server_from_one_that_hangs_and_one_that_has_left():
    alive, one_dead, again, others = asyncio.run(asyncio.wait_for(hear(), 60.0))
    assert alive == dict.fromkeys(alive, Answer.SERVES) | {"bare": Answer.LEFT}
    assert one_dead == alive | {"dead": Answer.REFUSED}
    assert again == {"dead": Answer.REFUSED}
    assert others == {"serves": Answer.LEFT, "bare": Answer.LEFT, "hangs": Answer.SILENT}
