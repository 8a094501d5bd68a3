"""When a late reply becomes suspicious: a bound that follows the session's own step times.

Rule (measured for the reference notes: of 1,958 healthy steps none took more than 6 times the moving average):
suspect after ``max(suspect_floor_s, suspect_factor x mean)``, plus what the request's further tokens should take;
a suspect that answers a probe is slow, not dead, and is given up only after the hard limit, which is twice as long for
the next server: perhaps it is the request that takes long. Before a span has taken a step of its own, what its client
knows of the server from other sessions stands in (``KnownLatencies``).
"""

from __future__ import annotations

from swarmlab.recovery.settings import RecoverySettings

_WEIGHT = 0.2  # of the newest observation in the moving averages
_MOST_DOUBLINGS = 3  # of the hard limit
FORGET_S = 600.0  # what was seen of a server so long ago says nothing of it, or of others, now


class ReplyLatency:
    """Moving averages of one span's reply times.

    A *step* adds one token to each row of the batch; what a request has beyond that are its *further* tokens. One
    average is of seconds per step, the other of seconds per further token.
    """

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self._step_s: float | None = None
        self._token_s: float | None = None
        # a request with further tokens, before any step: no step takes longer
        self._first_s: float | None = None
        self._doublings = 0

    @property
    def step_s(self) -> float | None:
        """Mean seconds of a step's reply; None until one was seen."""
        return self._step_s

    def copy(self) -> ReplyLatency:
        """The same averages for a replacement, until it has its own."""
        twin = ReplyLatency(self._settings)
        twin._step_s, twin._token_s, twin._first_s = self._step_s, self._token_s, self._first_s
        return twin.as_patient_as(self)

    def observe(self, seconds: float, n_further: int) -> None:
        """A reply to a request with ``n_further`` tokens beyond the first of each row took ``seconds``."""
        self._doublings = 0
        if n_further == 0:
            self._step_s = _blend(self._step_s, seconds)
        else:
            self._first_s = seconds
            rest = max(seconds - (self._step_s or 0.0), 0.0)
            self._token_s = _blend(self._token_s, rest / n_further)

    def gave_up(self) -> None:
        """A server was given up although it answers probes."""
        self._doublings = min(self._doublings + 1, _MOST_DOUBLINGS)

    def as_patient_as(self, other: ReplyLatency) -> ReplyLatency:
        """Itself, with a hard limit that was doubled as often as the other's."""
        self._doublings = other._doublings
        return self

    @property
    def late_step_s(self) -> float:
        """After what time a reply to a step is late; the least there is while none was seen."""
        settings = self._settings
        return max(settings.suspect_floor_s, settings.suspect_factor * (self._step_s or 0.0))

    def suspect_after_s(self, n_further: int) -> float:
        """How long a reply to such a request may take before the server is probed."""
        settings = self._settings
        base = self._late_first_s if self._step_s is None else self.late_step_s
        rate = settings.token_s if self._token_s is None else settings.suspect_factor * self._mean_token_s
        # whatever pauses seemed to teach: asking a server whether it is there costs next to nothing
        return base + min(rate * n_further, settings.hard_max_s + settings.token_s * n_further)

    @property
    def _late_first_s(self) -> float:
        """The same while no step was seen: a prefill took at least as long as a step will."""
        settings = self._settings
        if self._first_s is None:
            return settings.first_reply_s
        bound_s = max(settings.suspect_floor_s, settings.suspect_factor * self._first_s)
        return min(bound_s, max(settings.first_reply_s, settings.suspect_floor_s))

    @property
    def _mean_token_s(self) -> float:
        """No token of a request costs more than a step of its own; what it seemed to cost beyond that was a pause."""
        if self._token_s is None or self._step_s is None:
            return self._token_s or 0.0
        return min(self._token_s, self._step_s)

    def give_up_after_s(self, n_further: int) -> float:
        """How long a reply may take at all, whatever the probes say."""
        settings, times = self._settings, 2**self._doublings
        slow = times * max(settings.hard_floor_s, settings.hard_factor * (self._step_s or 0.0))
        slow = min(slow, settings.hard_max_s)  # a few slow replies must not make it endless
        # a rate learnt from short requests may be nothing but noise; here only a safe one will do
        rate = max(settings.token_s, settings.suspect_factor * self._mean_token_s)
        return max(slow + times * rate * n_further, self.suspect_after_s(n_further) + settings.probe_s)


class KnownLatencies:
    """What the sessions of one client have seen of servers' replies, so that a new session need not wait for a hung
    server as long as for one of which nothing is known. Times are in seconds of the client's clock.
    """

    def __init__(self) -> None:
        # with the time of the last reply, oldest first
        self._of_peer: dict[str, tuple[float, ReplyLatency]] = {}

    def __len__(self) -> int:
        return len(self._of_peer)

    def observed(self, peer_id: str, latency: ReplyLatency, now_s: float) -> None:
        """A span at that server has these averages now."""
        self._of_peer.pop(peer_id, None)
        self._of_peer[peer_id] = (now_s, latency.copy())
        self._forget(now_s)

    def to_begin_with(self, peer_id: str, before: ReplyLatency, now_s: float) -> ReplyLatency:
        """For a span that is opened at a server: as it was at the server before; if it has not taken a step yet, as
        other sessions found this server, or else as the middle one of those that are known, unless that would be to
        wait longer than for a first reply. As patient as before in any case.
        """
        self._forget(now_s)
        if before.step_s is not None:
            return before.copy()
        _, known = self._of_peer.get(peer_id, (now_s, None))
        if known is None:
            known = self._middle() or before
            if known.suspect_after_s(0) > before.suspect_after_s(0):
                known = before
        return known.copy().as_patient_as(before)

    def _middle(self) -> ReplyLatency | None:
        stepped = [one for _, one in self._of_peer.values() if one.step_s is not None]
        return (
            sorted(stepped, key=lambda one: one.step_s or 0.0)[(len(stepped) - 1) // 2] if stepped else None
        )

    def _forget(self, now_s: float) -> None:
        for peer_id, (seen_s, _) in list(self._of_peer.items()):
            if seen_s >= now_s - FORGET_S:
                break
            del self._of_peer[peer_id]


def _blend(mean: float | None, value: float) -> float:
    return value if mean is None else (1 - _WEIGHT) * mean + _WEIGHT * value
