"""How long to wait for a connection: not so long where others could serve the same blocks instead."""

from __future__ import annotations

import math
from collections.abc import Collection

from swarmlab.recovery.routing import DEFAULT_RTT_S, Hop
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import SwarmView

_MOST_DOUBLINGS = 32


def dial_patience_s(
    hop: Hop,
    view: SwarmView,
    avoided: Collection[str],
    settings: RecoverySettings,
    *,
    rtt_s: float = DEFAULT_RTT_S,
    n_failed: int = 0,
) -> float:
    """Seconds that a stream to ``hop`` may take to open.

    :param avoided: peers that would not be asked instead
    :param rtt_s: of its server; infinite if it did not answer
    :param n_failed: how often in a row that server has failed: twice as long each time, lest a far one is never reached
    """
    others = [r for r in view.serving() if r.peer_id != hop.peer_id and r.peer_id not in avoided]
    if not all(any(block in record.span for record in others) for block in hop.span):
        return settings.connect_s
    # one that did not answer the last ping is not far away but, most likely, gone
    near_s = min(rtt_s, DEFAULT_RTT_S) if math.isfinite(rtt_s) else 0.0
    hedge_s = max(settings.hedge_s, settings.hedge_factor * near_s)
    return min(settings.connect_s, hedge_s * 2 ** min(n_failed, _MOST_DOUBLINGS))
