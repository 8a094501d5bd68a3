"""Which servers the clients of a simulated swarm know, and choose: by the code of the real client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from swarmlab.recovery.routing import cheapest_chain
from swarmlab.sim.population import DISTANCES, generator
from swarmlab.types import ServerState, SwarmView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from swarmlab.recovery.routing import Hop, Need
    from swarmlab.sim.population import Member
    from swarmlab.sim.world import World
    from swarmlab.types import ServerRecord, Span

MOST_KEPT = 1024  # chains, so that clients of one site that see the same need not search again


@dataclass(frozen=True)
class Known:
    """What a client has read in the DHT.

    :param serving: servers with the blocks they serve; of two views that agree in it the same chains follow
    """

    serving: tuple[str, ...]
    view: SwarmView = field(compare=False)

    def among(self, peers: frozenset[str]) -> frozenset[str]:
        """Those of them that it shows: who is not there need not be avoided."""
        return peers and frozenset(record.peer_id for record in self.view.servers if record.peer_id in peers)


class Routes:
    """Views and chains for all clients of one world.

    :ivar block_tps: of each server, blocks times tokens/s
    :ivar rtt_s: of each site, round trips by server
    """

    def __init__(self, world: World, members: Sequence[Member]) -> None:
        self._world, clients = world, world.settings.clients
        self.block_tps = {
            member.name: member.throughput_tps * min(member.n_blocks, world.settings.n_blocks)
            for member in members
        }
        self.rtt_s = [
            _distances(generator(world.seed, DISTANCES, site).uniform(*_range(world), len(members)), members)
            for site in range(clients.n_sites)
        ]
        self._seen: dict[str, tuple[ServerRecord, ServerRecord | None]] = {}  # as read, and as made of it
        self._found = lru_cache(maxsize=MOST_KEPT)(self._search)

    def read(self) -> Known:
        """What the DHT shows now.

        A server announces how fast single steps are. One that moves block by block announces what it goes on serving,
        as real ones do; the simulator's record of it says only where it goes.
        """
        view = self._world.dht.view(self._world.now_s, "clients")
        records = tuple(found for record in view.servers if (found := self._served(record)) is not None)
        return Known(
            tuple(record.key for record in records), SwarmView(view.n_blocks, records, view.seen_at_s)
        )

    def _served(self, record: ServerRecord) -> ServerRecord | None:
        if record.state is ServerState.JOINING:
            span = self._world.serving.get(record.peer_id)
            return None if span is None else self._announced(replace(record, span=span))
        if record.state is ServerState.OFFLINE:
            return None
        known = self._seen.get(record.peer_id)
        if known is None or known[0] is not record:
            known = self._seen[record.peer_id] = (record, self._announced(record))
        return known[1]

    def _announced(self, record: ServerRecord) -> ServerRecord | None:
        step_tps = min(self._world.settings.clients.step_tps, self.block_tps[record.peer_id])
        return replace(record, state=ServerState.ONLINE, inference_tps=step_tps) if step_tps > 0 else None

    def cheapest(
        self, known: Known, site: int, span: Span, need: Need, excluded: frozenset[str], suspects: frozenset[str]
    ) -> tuple[Hop, ...]:  # fmt: skip
        """The chain that a client at this site chooses.

        :raises NoRoute: if some block has no usable server
        """
        return self._found(known, site, span, need, known.among(excluded), known.among(suspects))

    def _search(
        self, known: Known, site: int, span: Span, need: Need, excluded: frozenset[str], suspects: frozenset[str]
    ) -> tuple[Hop, ...]:  # fmt: skip
        return cheapest_chain(
            known.view, span, need, rtt_s=self.rtt_s[site], excluded=excluded, suspects=suspects
        )


def _range(world: World) -> tuple[float, float]:
    return world.settings.clients.rtt_min_s, world.settings.clients.rtt_max_s


def _distances(drawn: np.ndarray, members: Sequence[Member]) -> Mapping[str, float]:
    return {member.name: float(rtt_s) for member, rtt_s in zip(members, drawn, strict=True)}
