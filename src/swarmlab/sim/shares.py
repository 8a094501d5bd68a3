"""How fast tokens pass simulated servers that several sessions use at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swarmlab.recovery.routing import HOP_OVERHEAD_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simpy import Environment
    from simpy.events import Event, ProcessGenerator

    from swarmlab.recovery.routing import Hop


@dataclass(eq=False)
class Pass:
    """Tokens of one session on their way through servers: single steps, or a history that is fed at one go.

    Between two changes nothing happens, so that a stretch of any number of tokens is one event.

    :param hops: the servers that all of them pass, one after another
    :param left_tokens: how many have not passed, the broken part of the one under way included
    :param rtt_s: of the site, by server
    """

    hops: tuple[Hop, ...]
    left_tokens: float
    rtt_s: Mapping[str, float]
    feeds: bool = False

    def __post_init__(self) -> None:
        self._asked, self._stopped = self.left_tokens, False
        self._since_s, self._s_per_token = 0.0, 1.0
        self._changed: Event | None = None
        self.peers = tuple(dict.fromkeys(hop.peer_id for hop in self.hops))

    def run(self, env: Environment, shares: Shares) -> ProcessGenerator:
        """Until all have passed, or it is stopped."""
        shares.begin(self)
        while self.left_tokens > 0 and not self._stopped:
            self._since_s, self._s_per_token = float(env.now), shares.s_per_token(self)
            ends_s = self._since_s + self.left_tokens * self._s_per_token
            self._changed = env.event()
            yield env.timeout(ends_s - self._since_s) | self._changed
            self.left_tokens = 0.0 if env.now >= ends_s else self._left(float(env.now))
            self._changed = None
        shares.end(self)

    def change(self) -> None:
        """Its servers have become faster or slower."""
        if self._changed is not None and not self._changed.triggered:
            self._changed.succeed()

    def stop(self) -> None:
        """One of its servers is lost; what has not passed wholly has not passed."""
        self._stopped = True
        self.change()

    def done_tokens(self, now_s: float) -> int:
        """Tokens that have passed wholly."""
        under_way = self._left(now_s) if self._changed is not None else self.left_tokens
        return int(self._asked - max(0.0, under_way) + 1e-6)

    def _left(self, now_s: float) -> float:
        return self.left_tokens - (now_s - self._since_s) / self._s_per_token


@dataclass
class Shares:
    """Processor sharing: a server divides what it can do evenly among the sessions that work on it.

    A server of ``n`` blocks with ``T`` tokens/s through each of them can do ``n * T`` passes of a token through a block
    per second. With ``m`` sessions that generate, or are fed, over it, each gets ``n * T / m`` of them; a session that
    generates cannot use more than ``step_tps``, since it has one token at a time. A token of a session takes the sum,
    over the servers of its chain, of its blocks over that rate; a single step takes a round trip and the overhead of a
    request besides (``recovery.routing``). A session counts on all of its servers, wherever its token is: with hundreds
    of sessions waits are longer than in a real swarm, where those that are elsewhere take no time here.

    :param block_tps: of each server, blocks times tokens/s
    """

    block_tps: Mapping[str, float]
    step_tps: float
    _passes: dict[str, dict[Pass, None]] = field(default_factory=dict)

    def begin(self, one: Pass) -> None:
        for peer in one.peers:
            others = self._passes.setdefault(peer, {})
            self._tell(peer, others, len(others), len(others) + 1)
            others[one] = None

    def end(self, one: Pass) -> None:
        for peer in one.peers:
            others = self._passes[peer]
            del others[one]
            self._tell(peer, others, len(others) + 1, len(others))

    def s_per_token(self, one: Pass) -> float:
        """Seconds that a token of it takes as things are now."""
        return sum(self._hop_s(one, hop) for hop in one.hops)

    def _hop_s(self, one: Pass, hop: Hop) -> float:
        share_tps = self.block_tps[hop.peer_id] / len(self._passes[hop.peer_id])
        if one.feeds:
            return hop.span.length / share_tps
        return one.rtt_s[hop.peer_id] + HOP_OVERHEAD_S + hop.span.length / min(self.step_tps, share_tps)

    def _tell(self, peer: str, others: Iterable[Pass], before: int, after: int) -> None:
        """Those who notice that there are more or fewer."""
        generating = self.block_tps[peer] / max(before, after) < self.step_tps
        for one in others:
            if one.feeds or generating:
                one.change()
