"""Whether a move that was decided some time ago is still right, asked just before something is dropped for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from swarmlab.placement.moves import mean_with
from swarmlab.placement.situation import situation
from swarmlab.placement.softmin import sharpness, utilities

if TYPE_CHECKING:
    from swarmlab.placement.policy import Server
    from swarmlab.types import Intent, Span, SwarmView

TOLERANCE = 1e-6  # of the mean throughput; less is float noise


def gain(view: SwarmView, server: Server, old: Span, target: Span, intent: Intent | None = None) -> float:
    """What the soft minimum of the throughputs gains by the move, all others arrived where they go, in tokens/s."""
    seen = situation(view, server.peer_id, None, intent)
    rate = min(server.throughput_tps, seen.cap_tps)
    mean = mean_with(seen, rate, old.length)
    if mean <= 0 or rate <= 0:
        return 0.0
    reached = utilities(seen.committed_tps, rate, old.length, sharpness(mean, seen.grain_tps) / mean)
    return float(reached[target.start] - reached[old.start])


def objection(
    view: SwarmView,
    server: Server,
    old: Span,
    target: Span,
    *,
    leaving: tuple[int, ...],
    intent: Intent | None,
    gain_then: float,
) -> str | None:
    """Why the move must not go on; None if nothing speaks against it.

    A move may leave a block unserved only in a swarm that has a gap already, and only to close it. A move that was
    worth something when it was decided is not made if that is gone, as when somebody else filled the gap; one that
    gained nothing by itself (a part of a plan of several servers) may lose no more than it did.

    :param old: where the server would stay
    :param leaving: the blocks it would drop next
    :param intent: the move as it announced it; only intents that are older go first
    :param gain_then: what :func:`gain` said when the move was decided
    """
    seen = situation(view, server.peer_id, None, intent)
    alone = [block for block in leaving if seen.staying[block] <= 0]
    if alone:
        others = seen.staying > 0
        others[old.start : old.end] = True
        if others.all():
            return f"nobody else serves block {alone[0]}"
        committed = seen.committed > 0
        committed[target.start : target.end] = True
        if not committed.all():
            return (
                f"nobody else serves block {alone[0]}, nor block {int(np.argmin(committed))} after the move"
            )
    now = gain(view, server, old, target, intent)
    noise = TOLERANCE * mean_with(seen, server.throughput_tps, old.length)
    if now <= noise and now < gain_then - noise:
        return f"others have filled the gap: the move would gain {now:.3g} tokens/s, no more {gain_then:.3g}"
    return None
