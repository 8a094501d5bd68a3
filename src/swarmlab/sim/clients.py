"""Clients of a simulated swarm: each generates one session after another and is told when it loses a server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from swarmlab.recovery.bans import BanTable
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.sim.population import CLIENTS, generator
from swarmlab.sim.routes import Routes
from swarmlab.sim.sessions import Session
from swarmlab.sim.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from simpy.events import ProcessGenerator

    from swarmlab.recovery.routing import Hop
    from swarmlab.sim.population import Member
    from swarmlab.sim.routes import Known
    from swarmlab.sim.world import World
    from swarmlab.types import Span, SwarmView


class Traffic:
    """All clients of one world. They change nothing in it: servers do the same with them and without.

    :ivar members: servers by name
    """

    def __init__(self, world: World, members: Sequence[Member]) -> None:
        self.world = world
        self.members: Mapping[str, Member] = {member.name: member for member in members}
        self.routes = Routes(world, members)
        self.shares = Shares(self.routes.block_tps, world.settings.clients.step_tps)
        self.clients = [Client(self, number) for number in range(world.settings.clients.n_clients)]
        self._held: dict[str, dict[tuple[Session, Hop], None]] = {}

    def begin(self) -> None:
        self.world.observers.append(self._served)
        for client in self.clients:
            self.world.env.process(client.run())
        self.world.env.process(self._sample())

    def end(self) -> None:
        """The simulation is over: what clients wait for at that moment counts, too."""
        for client in self.clients:
            client.cut_off()

    def hold(self, session: Session, hop: Hop) -> None:
        """The session has attention caches there; it is told if the server stops serving them."""
        self._held.setdefault(hop.peer_id, {})[session, hop] = None

    def release(self, session: Session, hop: Hop) -> None:
        del self._held[hop.peer_id][session, hop]

    def _served(self, name: str, span: Span | None) -> None:
        for session, hop in [*self._held.get(name, ())]:
            if span is None or not span.covers(hop.span):
                self.release(session, hop)
                session.lose(hop)

    def _sample(self) -> ProcessGenerator:
        """At even intervals, what all clients got since the last one, and how many look for a server."""
        every_s, before = self.world.settings.sample_every_s, 0
        while True:
            yield self.world.env.timeout(every_s)
            tokens = sum(client.tokens for client in self.clients)
            seeking = sum(client.seeks for client in self.clients)
            self.world.log(
                "delivered",
                tokens=tokens - before,
                seconds=every_s,
                clients=len(self.clients),
                clients_seeking=seeking,
            )
            before = tokens


@contextmanager
def clients_of(world: World, members: Sequence[Member]) -> Iterator[None]:
    """While a world runs its clients generate, if it has any; what they wait for at its end counts, too."""
    traffic = Traffic(world, members) if world.settings.clients.n_clients else None
    if traffic is not None:
        traffic.begin()
    yield
    if traffic is not None:
        traffic.end()


class Client:
    """``run`` is its SimPy process.

    :ivar bans: what its sessions know of servers that failed
    """

    def __init__(self, traffic: Traffic, number: int) -> None:
        self.traffic, self.number = traffic, number
        settings = traffic.world.settings.clients
        self.site = number % settings.n_sites
        self.rtt_s = traffic.routes.rtt_s[self.site]
        self.recovery = RecoverySettings(recovery_s=settings.patience_s)
        self.bans = BanTable(self.recovery)
        self._draws = generator(traffic.world.seed, CLIENTS, number)
        self._known: Known | None = None
        self._session: Session | None = None
        self._ended_tokens = 0

    @property
    def tokens(self) -> int:
        """All that it has got up to now."""
        return self._ended_tokens + (self._session.tokens if self._session else 0)

    @property
    def seeks(self) -> bool:
        """Whether it waits because it knows no server for some block."""
        return self._session is not None and self._session.seeks

    @property
    def view(self) -> SwarmView | None:
        return self._known.view if self._known else None

    def known(self, age_s: float) -> Known:
        """What it knows of the swarm; read again if it is older than this."""
        if self._known is None or self.traffic.world.now_s - self._known.view.seen_at_s >= max(age_s, 1e-9):
            self._known = self.traffic.routes.read()
        return self._known

    def cut_off(self) -> None:
        if self._session is not None:
            self._session.cut_off()

    def run(self) -> ProcessGenerator:
        """One session after another, from some moment within the warm-up on."""
        world, pause_s = self.traffic.world, self.traffic.world.settings.clients.pause_s
        yield world.env.timeout(self._draws.uniform(0, world.settings.warm_up_s))
        number = 0
        while True:
            self._session = session = Session(self, number)
            yield from session.run()
            self._ended_tokens += session.tokens
            self._session = None
            number += 1
            if pause_s > 0:
                yield world.env.timeout(self._draws.exponential(pause_s))
