"""A simulated swarm to which the same things happen as to a real one that was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmlab.placement.layout import layout_of
from swarmlab.placement.policy import stay
from swarmlab.sim.clients import clients_of
from swarmlab.sim.processes import ServerLife
from swarmlab.sim.world import Arm, World
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simpy.events import ProcessGenerator

    from swarmlab.sim.population import Member
    from swarmlab.sim.settings import SimSettings
    from swarmlab.types import Decision, Event, Span


@dataclass(frozen=True)
class Loss:
    """A server whose records nobody sees for a while; decisions to move are held back meanwhile.

    :param from_s: since when
    :param most_s: how long at most
    :param back_s: after the first decision to move, they are back so much later
    """

    server: str
    from_s: float
    most_s: float
    back_s: float


@dataclass(frozen=True)
class Script:
    """Times in simulated seconds.

    :param fixed: servers that never look at the balance of the swarm
    :param settles_s: the swarm is left alone until then: nobody looks at it
    """

    loss: Loss | None = None
    fixed: frozenset[str] = frozenset()
    settles_s: float = 0.0


class Absence:
    """The loss of a script while it goes on. ``run`` is its SimPy process."""

    def __init__(self, world: World, loss: Loss) -> None:
        self._world, self._loss = world, loss
        self.lasts = False
        self.back, self._decided = world.env.event(), world.env.event()

    def run(self) -> ProcessGenerator:
        env, loss = self._world.env, self._loss
        yield env.timeout(loss.from_s)
        self.lasts = True
        self._world.dht.hide(loss.server, float("inf"))
        yield self._decided | env.timeout(loss.most_s)
        if self._decided.triggered:
            yield env.timeout(loss.back_s)
        self.lasts = False
        self._world.dht.hide(loss.server, self._world.now_s)
        self.back.succeed()

    def decided(self) -> None:
        """Some server wants to move."""
        if not self._decided.triggered:
            self._decided.succeed()


class ScriptedLife(ServerLife):
    """A server of the script; one of ours loads what is new while it serves on, as real ones do with enough memory."""

    def __init__(
        self, world: World, member: Member, index: int, script: Script, absence: Absence | None
    ) -> None:
        super().__init__(world, member, index)
        self._script, self._absence = script, absence
        self.movable = member.name not in script.fixed

    def _check(self) -> Decision:
        now_s = self.world.now_s
        if self.member.name in self._script.fixed or now_s < self._script.settles_s:
            view = self.world.dht.view(now_s)
            return stay(
                self._server(), float(layout_of(view).throughput_tps.min()), "fixed", "fixed", self._memory
            )
        return super()._check()

    def _carry_out(self, decision: Decision) -> ProcessGenerator:
        if self._absence is not None and self._absence.lasts:
            self._absence.decided()
            yield self._absence.back
        if decision.intent is not None:  # said only now: others see what it goes for while it loads
            self._announce(self.span, ServerState.ONLINE, decision.intent)
        yield from super()._carry_out(decision)

    def _change(self, old: Span | None, new: Span) -> ProcessGenerator:
        if old is None or not self.world.arm.keeps_overlap:
            yield from super()._change(old, new)
            return
        reload = self._begin_reload(old)
        reload.new, reload.kept = new, old.overlap(new)
        blocks = tuple(block for block in new if block not in old)
        yield self.world.env.timeout(self.load.s_per_move + self.load.s_per_block * len(blocks))
        reload.load(blocks)
        self.span = new
        self._serve(new)
        self._end_reload(completed=True)
        self._announce(new, ServerState.ONLINE)
        self._log_state(ServerState.ONLINE)


def play(
    settings: SimSettings, members: Sequence[Member], arm: Arm, script: Script, seed: int
) -> list[Event]:
    """What happens in the swarm: one event after another, the same each time for the same arguments."""
    world = World(arm, settings, seed)
    absence = None if script.loss is None else Absence(world, script.loss)
    for index, member in enumerate(members):
        world.env.process(ScriptedLife(world, member, index, script, absence).run())
    world.env.process(world.sample())
    if absence is not None:
        world.env.process(absence.run())
    with clients_of(world, members):
        world.env.run(until=settings.duration_s)
    return world.history
