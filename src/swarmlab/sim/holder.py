"""What one simulated server holds and serves, and what changing that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.sim.account import ReloadAccount
from swarmlab.sim.rows import state_row
from swarmlab.types import ServerState

if TYPE_CHECKING:
    from simpy.events import ProcessGenerator

    from swarmlab.sim.population import Member
    from swarmlab.sim.reload import Step
    from swarmlab.sim.world import World
    from swarmlab.types import Span


class Holder:
    """The blocks of one member of one world.

    :ivar width: how many it holds
    :ivar span: which it serves, or loads
    """

    def __init__(self, world: World, member: Member) -> None:
        self.world, self.member = world, member
        self.width = min(member.n_blocks, world.settings.n_blocks)
        self.span: Span | None = None
        self._reload: ReloadAccount | None = None

    def _load(self, step: Step, reload: ReloadAccount) -> ProcessGenerator:
        self._serve(step.serving)
        self._log_state(ServerState.JOINING)
        if step.seconds > 0:
            yield self.world.env.timeout(step.seconds)
        reload.load(step.blocks)

    def _serve(self, span: Span | None) -> None:
        # What is not served is counted up to now with what was served until now.
        self._count_lost()
        self.world.serve(self.member.name, span)

    def _count_lost(self) -> None:
        if self._reload is not None:
            served = self.world.serving.get(self.member.name)
            self._reload.count(self.world.now_s, self.width - (served.length if served else 0))

    def _begin_reload(self, old: Span | None) -> ReloadAccount:
        self._reload = ReloadAccount(old, self.world.now_s)
        self.world.loading.add(self.member.name)
        return self._reload

    def _end_reload(self, *, completed: bool) -> None:
        if self._reload is None:
            return
        self._count_lost()
        row = self._reload.row(self.world.now_s, completed=completed)
        self.world.log("reloads", server=self.member.name, throughput_tps=self.member.throughput_tps, **row)
        self._reload = None
        self.world.loading.discard(self.member.name)

    def _log_state(self, state: str) -> None:
        served = self.world.serving.get(self.member.name)
        self.world.log("servers", **state_row(self.member.name, state, self.span, served))
