"""What a server that joins may believe of the swarm: a slow DHT leaves out records, and a new one knows no peers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from swarmlab.types import SwarmView

MOST_LOOKS = 6
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 2.0
SEEN_EMPTY, SEEN_WITH_HOLES = 3, 2  # looks in a row until that is believed


def wait_s(n_looks: int) -> float:
    """Seconds before the next look."""
    return min(FIRST_WAIT_S * 2 ** (n_looks - 1), LONGEST_WAIT_S)


def is_settled(looks: Sequence[SwarmView | None]) -> bool:
    """Whether the last look will do: nothing is missing there, or the same is missing again and again.

    :param looks: oldest first; None where the DHT did not answer
    """
    last = looks[-1] if looks else None
    if last is None:
        return False
    missing = _missing(last)
    if not missing:
        return True
    same = takewhile(lambda look: look is not None and _missing(look) == missing, reversed(looks))
    return len(list(same)) >= (SEEN_WITH_HOLES if last.servers else SEEN_EMPTY)


def believed(looks: Sequence[SwarmView | None]) -> SwarmView | None:
    """What to join: the last look if it will do, else the fullest; None if the DHT never answered."""
    return looks[-1] if is_settled(looks) else fullest(looks)


def fullest(looks: Sequence[SwarmView | None]) -> SwarmView | None:
    """The look that shows most blocks held, of those the last one; None if the DHT never answered."""
    seen = [look for look in looks if look is not None]
    return min(reversed(seen), key=lambda look: len(_missing(look)), default=None)


def _missing(view: SwarmView) -> tuple[int, ...]:
    return view.uncovered(serving_only=False)
