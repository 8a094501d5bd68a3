"""Says in the DHT what a server serves and where it is going, at once when that changes and again and again.

What it serves is ONLINE, what it is loading for a move JOINING; petals takes a peer that has both for the ONLINE one
(``compute_spans`` keeps the highest state), so an announced move disturbs no unmodified client or server.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hivemind.utils import get_dht_time, get_logger
from petals.data_structures import UID_DELIMITER, ServerInfo, ServerState
from petals.server.server import ModuleAnnouncerThread

from swarmlab.bridge.serving.dht_port import DhtPort
from swarmlab.bridge.snapshot import PLAN_KEY, move_to_details
from swarmlab.types import Intent, Span

logger = get_logger(__name__)

GOODBYE_S = 10.0  # a thread that waits for a DHT which does not answer is left behind


@dataclass(frozen=True)
class Statement:
    """What a server says of itself.

    :param online: what it serves; None for nothing
    :param intent: where it is going, or what it is loading; None if it stays
    """

    online: Span | None
    intent: Intent | None = None


class Announcer(ModuleAnnouncerThread):
    """Petals' announcer, whose blocks may change.

    :param server: petals' ``Server``, for its settings
    :param statement: the first one, said when the thread is started
    :param follows_plan: whether the server would make its part of the plan that our servers share
    """

    def __init__(
        self,
        server: Any,
        dht: DhtPort,
        memory_cache: Any,
        statement: Statement,
        *,
        follows_plan: bool = False,
    ) -> None:
        self.serving = True  # False: what is online cannot be used right now
        self._follows_plan = follows_plan
        self._n_blocks = server.block_config.num_hidden_layers
        self._statement = statement
        self._said_until_s: dict[int, float] = {}  # blocks that records of ours may still be alive for
        self._saying, self._ended = threading.Lock(), False
        first = statement.online or (statement.intent and statement.intent.span)
        port: Any = dht  # stands in for hivemind's
        if first is None:
            raise ValueError("a server that serves nothing and goes nowhere has nothing to say")
        super().__init__(
            [self._uid_in(server.dht_prefix, block) for block in first],
            port,
            server.server_info,
            server.model_info,
            block_config=server.block_config,
            memory_cache=memory_cache,
            update_period=server.update_period,
            expiration=server.expiration,
            daemon=True,
        )

    @staticmethod
    def _uid_in(prefix: str, block: int) -> str:
        return f"{prefix}{UID_DELIMITER}{block}"

    def run(self) -> None:
        """Renew what was last said until the server is offline; a DHT that does not answer is asked again."""
        while not self._ended:
            with self._saying:
                self._say(self._statement)
            try:
                self._ping_next_servers()
                self._say_model()
            except Exception as error:  # noqa: BLE001 - the server serves on, whatever the DHT does
                logger.warning(f"The DHT did not answer: {type(error).__name__}: {error}")
            self.trigger.wait(self.update_period)
            self.trigger.clear()

    def say(self, statement: Statement) -> bool:
        """Store records that say so; False if the DHT took none of them (they are said again in time).

        Blocks that are left are OFFLINE before others are ONLINE: a peer's records at two places would be taken for
        one span by petals.
        """
        with self._saying:
            return self._ended or self._say(statement)

    def say_again(self) -> bool:
        """The same once more, since ``serving`` has changed.

        While that is False, what would be online is joining: clients go elsewhere, servers leave its blocks to it.
        """
        with self._saying:
            return self._ended or self._say(self._statement)

    def go_offline(self) -> None:
        """Tell that nothing is served any more, and end the thread."""
        with self._saying:
            self._ended = True
            self._say(Statement(None))
        self.trigger.set()
        if self.is_alive():
            self.join(GOODBYE_S)

    def _say(self, statement: Statement) -> bool:
        self._statement = statement
        if statement.online is not None and not self.serving:
            statement = Statement(None, Intent(statement.online, get_dht_time()))
        self._follow(statement)
        now_s = get_dht_time()
        expires_at_s, here = now_s + self.expiration, _states(statement)
        left = {block: until_s for block, until_s in self._said_until_s.items() if until_s > now_s}
        gone = {block: ServerState.OFFLINE for block in left if block not in here}
        self._said_until_s = {block: left[block] for block in gone} | dict.fromkeys(here, expires_at_s)
        taken = [self._store(states, statement, expires_at_s) for states in (gone, here) if states]
        return all(taken)

    def _follow(self, statement: Statement) -> None:
        # What petals' own parts of the thread look at: the blocks after the first one are pinged.
        shown = statement.online or (statement.intent and statement.intent.span)
        if shown is not None:
            self.module_uids = [self._uid(block) for block in shown]
            self.next_uids = [self._uid(block) for block in range(shown.start + 1, shown.end + 1)]

    def _store(self, states: dict[int, ServerState], statement: Statement, expires_at_s: float) -> bool:
        values = [self._value(state, statement) for state in states.values()]
        job = partial(
            _store_records,
            keys=[self._uid(block) for block in states],
            values=values,
            subkey=self.dht.peer_id.to_base58(),
            expires_at_s=expires_at_s,
        )
        try:
            return any(self.dht.run_coroutine(job).values())
        except Exception as error:  # noqa: BLE001 - the server serves on, whatever the DHT does
            logger.warning(f"The DHT took no records: {type(error).__name__}: {error}")
            return False

    def _value(self, state: ServerState, statement: Statement) -> tuple[int, float, dict[str, Any]]:
        online, wants = statement.online, statement.intent and statement.intent.span
        span = online if state is ServerState.ONLINE else wants
        info: ServerInfo = dataclasses.replace(
            self.server_info,
            state=state,
            start_block=span and span.start,
            end_block=span and span.end,
            cache_tokens_left=self.memory_cache.bytes_left // self.bytes_per_token,
            next_pings={peer.to_base58(): rtt for peer, rtt in self.ping_aggregator.to_dict().items()},
        )
        number, throughput, details = info.to_tuple()
        if self._follows_plan:
            details |= {PLAN_KEY: True}
        if online is not None and statement.intent is not None and state is not ServerState.OFFLINE:
            details |= move_to_details(online, statement.intent.span, statement.intent.announced_at_s)
        return number, throughput, details

    def _say_model(self) -> None:
        if self.dht_prefix.startswith("_"):
            return  # a private model, as petals has it
        job = partial(
            _store_records,
            keys=["_petals.models"],
            values=[self.model_info.to_dict()],
            subkey=self.dht_prefix,
            expires_at_s=get_dht_time() + self.expiration,
        )
        self.dht.run_coroutine(job)

    def _uid(self, block: int) -> str:
        return self._uid_in(self.dht_prefix, block)


def _states(statement: Statement) -> dict[int, ServerState]:
    joining = statement.intent.span if statement.intent else ()
    online = statement.online or ()
    return dict.fromkeys(joining, ServerState.JOINING) | dict.fromkeys(online, ServerState.ONLINE)


async def _store_records(
    _dht: Any, node: Any, *, keys: Sequence[str], values: Sequence[Any], subkey: str, expires_at_s: float
) -> dict[str, bool]:
    # runs in the DHT's process
    return await node.store_many(
        keys=list(keys),
        values=list(values),
        expiration_time=expires_at_s,
        subkeys=[subkey] * len(keys),
        num_workers=len(keys),
    )
