"""Where a scenario wants a client to wait for the orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FaultPoint:
    """A place on a client's way: before a step, or before one of its requests to a span.

    :param token: index of the step, 0 is the (first piece of the) prompt
    :param span: None for the whole step, else which span of the chain: first, middle or last
    :param request: with ``span``: before which of the step's requests to it, from 1; a replay counts as one more
    """

    def __init__(self, token: int, span: str | None, request: int, n_blocks: int) -> None:
        self.token, self.span, self.request = token, span, request
        self._n_blocks, self._seen, self._passed = n_blocks, 0, False

    def reached(self, token: int, place: Mapping[str, Any] | None) -> bool:
        """Whether the client is here now, for the first time.

        :param place: the span about to be asked; None at the beginning of a step
        """
        if self._passed or token != self.token or (self.span is None) != (place is None):
            return False
        if place is not None:
            self._seen += self.span == span_role(place["start"], place["end"], self._n_blocks)
        self._passed = place is None or self._seen == self.request
        return self._passed

    def as_dict(self) -> dict[str, Any]:
        return {"token": self.token, "span": self.span, "request": self.request}


def span_role(start: int, end: int, n_blocks: int) -> str:
    """What a span is in its chain."""
    return "first" if start == 0 else "last" if end == n_blocks else "middle"
