"""Every number the recovery policy uses, with its unit."""

from __future__ import annotations

from dataclasses import dataclass, fields

from swarmlab.errors import BadInput

MAY_BE_ZERO = ("standby_tokens", "history_max_bytes")


@dataclass(frozen=True)
class RecoverySettings:
    """How long to wait, whom to avoid and when to give up. All times in seconds of the client's clock.

    :param connect_s: longest wait for a stream to open; after it the peer that did not answer is blamed. It counts if
        nobody else serves the blocks: who gives up waits for the end of a ban instead, so less would be later
    :param hedge_s: ... unless others serve the same blocks: then it is left for them after this at the earliest
    :param hedge_factor: ... and after this multiple of its round trip time; both double with each failure in a row
    :param read_view_s: longest wait for one read of the DHT
    :param renew_view_s: the same while there is an older view to begin with
    :param view_age_s: a view older than this is read again, and used meanwhile
    :param view_max_age_s: a view older than this is not used before ``renew_view_s`` is over
    :param recovery_s: a step gives up when its recoveries have taken this long in all
    :param attempts: a step gives up after this many failed replacements of the same blocks, not counting that each
        server may be found silent once
    :param retry_s: wait before a route is sought again when nobody serves a block; doubles up to ``retry_max_s``
    :param ban_s: a peer that failed is avoided this long, doubling with each failure in a row
    :param ban_max_s: the longest ban
    :param busy_s: a peer without free cache is set aside this long; it is not to blame
    :param backoff_s: a peer that our own libp2p does not dial yet is set aside this long
    :param alloc_s: how long a server may queue our cache allocation before it answers "busy"
    :param replay_tokens: most tokens (batch times positions) in one request; petals refuses more than 2,048
    :param standby_tokens: keep a warm standby for each span, at most about this many positions behind; 0 keeps none
    :param history_max_bytes: most memory that one session's histories may take (room to grow included); 0 for any
    :param suspect_floor_s: a reply later than this is suspicious at the earliest
    :param suspect_factor: ... and later than this multiple of the mean step time
    :param first_reply_s: the same bound while the client has observed nothing yet
    :param token_s: what each further token of a request adds to the bound while its own rate is unknown
    :param probe_s: a suspected server must answer a probe within this time, twice as long after each of its failures
    :param hard_floor_s: a server that answers probes but not the request is given up after this at the earliest, the
        next one after twice as long
    :param hard_factor: ... and after this multiple of the mean step time
    :param hard_max_s: ... and after this at the latest, unless the request is long
    :param idle_s: a span idle for this long is reopened before the server's own step timeout (300 s) closes it
    :param lifetime_s: ... and one open this long before the server's session timeout (1,800 s) does
    :param close_s: longest wait for a polite goodbye
    """

    connect_s: float = 10.0
    hedge_s: float = 0.5
    hedge_factor: float = 10.0
    read_view_s: float = 5.0
    renew_view_s: float = 0.5
    view_age_s: float = 30.0
    view_max_age_s: float = 60.0
    recovery_s: float = 120.0
    attempts: int = 12
    retry_s: float = 0.25
    retry_max_s: float = 4.0
    ban_s: float = 5.0
    ban_max_s: float = 120.0
    busy_s: float = 2.0
    backoff_s: float = 0.5
    alloc_s: float = 2.0
    replay_tokens: int = 1024
    standby_tokens: int = 0
    history_max_bytes: int = 8 * 2**30
    suspect_floor_s: float = 0.5
    suspect_factor: float = 6.0
    first_reply_s: float = 3.0
    token_s: float = 0.05
    probe_s: float = 1.0
    hard_floor_s: float = 20.0
    hard_factor: float = 60.0
    hard_max_s: float = 60.0
    idle_s: float = 270.0
    lifetime_s: float = 1700.0
    close_s: float = 1.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            kind, allowed = (int, "a whole number") if entry.type == "int" else ((int, float), "a number")
            number = isinstance(value, kind) and not isinstance(value, bool)
            if not number or not (value > 0 or (entry.name in MAY_BE_ZERO and value == 0)):
                or_zero = ", or 0 for none" if entry.name in MAY_BE_ZERO else ""
                raise BadInput(f"recovery.{entry.name}", value, f"{allowed} above 0{or_zero}")
