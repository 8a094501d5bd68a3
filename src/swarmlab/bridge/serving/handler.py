"""The process that takes requests for all blocks of a model, and serves those that are held when they come."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, AsyncIterator  # noqa: UP035 - hivemind looks for typing's own

from hivemind.p2p import P2PContext
from hivemind.proto import runtime_pb2
from petals.data_structures import parse_uid
from petals.server.handler import TransformerConnectionHandler

if TYPE_CHECKING:
    from swarmlab.bridge.serving.front import HeldBlocks
    from swarmlab.bridge.serving.presence import Presence


class BlockHandler(TransformerConnectionHandler):
    """Petals' handler, which serves the blocks that are held now and counts sessions."""

    def __init__(self, *args: Any, presence: Presence, held: HeldBlocks, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._presence, self._held = presence, held

    def run(self) -> None:
        """Of the forked process. One that replaces another has copies of the blocks held at that moment: it must not
        keep their memory from the server when that drops them."""
        self._held.free_copies()
        super().run()

    def _check_uids(self, uids: str) -> Sequence[str]:
        """:raises RuntimeError: as petals does for a block that it does not serve"""
        checked = super()._check_uids(uids)
        for uid in checked:
            self._require_held(uid)
        return checked

    def _require_held(self, uid: str) -> None:
        if not self._presence.is_held(parse_uid(uid)[1]):
            raise RuntimeError(f"Remote peer does not serve {uid}")

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        """As petals', for blocks that are held."""
        if request.uid:
            self._require_held(request.uid)
        return await super().rpc_info(request, context)

    async def rpc_inference(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        """As petals', counted as a session on each of its blocks as long as it lasts."""
        blocks: list[int] = []

        async def noted() -> AsyncIterator[runtime_pb2.ExpertRequest]:
            async for request in requests:
                if not blocks:
                    blocks.extend(parse_uid(uid)[1] for uid in self._check_uids(request.uid))
                    self._presence.count_session(blocks, 1)
                yield request

        session: Any = super().rpc_inference(noted(), context)
        try:
            async with aclosing(session) as replies:
                async for reply in replies:
                    yield reply
        finally:
            self._presence.count_session(blocks, -1)

    async def _iterate_inference_steps(
        self, first_request: Any, requests: Any, session_id: Any, requested_uids: Sequence[str], context: Any
    ) -> AsyncIterator[Any]:
        """As petals', also for steps that another server pushes.

        :raises RuntimeError: for a block that was away since the session began: nobody vouches that its weights are
            those that the attention cache was made with
        """
        blocks = [parse_uid(uid)[1] for uid in requested_uids]
        at_first = self._presence.arrivals(blocks)
        steps: Any = super()._iterate_inference_steps(
            first_request, requests, session_id, requested_uids, context
        )
        async with aclosing(steps):
            async for step in steps:
                for uid in requested_uids:
                    self._require_held(uid)
                if self._presence.arrivals(blocks) != at_first:
                    raise RuntimeError("A block was dropped and loaded again since the session began")
                yield step


# hivemind announces a handler under the name of its class, and clients ask for petals'
BlockHandler.__name__ = TransformerConnectionHandler.__name__
